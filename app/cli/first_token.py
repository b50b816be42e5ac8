"""The first token of an operator: made where there never was one, so that somebody can sign in at the console."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import audit, locks, tokens
from app.locks import Lock
from app.tokens import Token

NAME, ROLE = "first-operator", "operator"
LIFETIME = timedelta(days=90)
MAKE_ONE = "tidemill token create NAME --role operator"


def missing(session: Session) -> bool:
    return not session.scalar(sa.select(sa.exists().where(Token.role == ROLE)))


def make(session: Session) -> str | None:
    """The token, which nobody can show again; None where there is one of an operator, or was."""
    # Of programs that start at once, only one makes it.
    locks.take(session, Lock.FIRST_TOKEN)
    if not missing(session):
        return None
    name = NAME
    while session.get(Token, name) is not None:
        name += "-1"
    text = tokens.create(session, name, ROLE, None, LIFETIME, audit.actor())
    audit.record(session, "token.create", name, reason="there was none of an operator", role=ROLE)
    return text
