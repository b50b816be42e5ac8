"""Tokens in the database: made, looked up, listed, revoked. Whoever changes one by hand audits it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import timedelta
from hashlib import sha256

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session, defer

from app.errors import BadRequest, NotFound
from app.near import nearest, shown
from app.tokens.holder import Holder, checked_name, checked_role, checked_scope
from app.tokens.model import Token
from app.words import span

#: So that a scanner of repositories knows one when it sees it.
PREFIX = "tdm_"
BYTES = 32
LONGEST_LIFE = timedelta(days=3650)
#: Nothing longer was ever a token; it is looked up all the same, by its beginning.
TEXT_LIMIT = 200


def digest(text: str) -> bytes:
    return sha256(text[:TEXT_LIMIT].encode(errors="replace")).digest()


def create(
    session: Session,
    name: str,
    role: str,
    scope: Iterable[str] | None = None,
    lifetime: timedelta | None = None,
    created_by: str | None = None,
) -> str:
    """The token itself, which nobody can show again. `lifetime`: None is for ever."""
    values = {"name": checked_name(name), "role": checked_role(role), "scope": checked_scope(role, scope)}
    if lifetime is not None and not timedelta(0) < lifetime <= LONGEST_LIFE:
        raise BadRequest(
            f"a lifetime of {span(lifetime)} must be more than nothing and at most {LONGEST_LIFE.days} days"
        )
    text = PREFIX + secrets.token_urlsafe(BYTES)
    insert = postgresql.insert(Token).values(
        **values,
        hash=digest(text),
        expires_at=sa.func.now() + lifetime if lifetime is not None else None,
        created_by=created_by,
    )
    if session.execute(insert.on_conflict_do_nothing(index_elements=["name"]).returning(Token.name)).first() is None:
        raise BadRequest(f"there is a token {name} already, or was: its name is in the records, choose another")
    return text


def check(session: Session, text: str) -> Holder | None:
    """Whose token this is, by the clock of the database. None: nobody's, or not any more."""
    query = sa.select(Token.name, Token.role, Token.scope).where(
        Token.hash == digest(text),
        Token.revoked_at.is_(None),
        sa.or_(Token.expires_at.is_(None), Token.expires_at > sa.func.now()),
    )
    row = session.execute(query).first()
    return row and Holder(row.name, row.role, None if row.scope is None else tuple(row.scope))


def revoke(session: Session, name: str) -> bool:
    """For good. Whether it was valid so far as that goes."""
    found = session.scalars(sa.select(Token).where(Token.name == name).with_for_update()).one_or_none()
    if found is None:
        near = nearest(name, session.scalars(sa.select(Token.name)))
        hint = f"did you mean {near}?" if near else "'tidemill token list' shows those that there are"
        raise NotFound(f"there is no token {shown(name)}: {hint}")
    new = found.revoked_at is None
    if new:
        found.revoked_at = session.scalar(sa.select(sa.func.now()))
        session.flush()
    return new


def listed(session: Session) -> list[Token]:
    """By name, without their hashes."""
    return list(session.scalars(sa.select(Token).options(defer(Token.hash, raiseload=True)).order_by(Token.name)))
