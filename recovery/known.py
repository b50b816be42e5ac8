"""The rules of errors that somebody knows, kept in the database: added, listed, removed by name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, Session, mapped_column

from app import audit
from app.checks import checked_line
from app.db import Model
from app.errors import BadRequest, NotFound, TooLarge
from app.near import nearest, shown
from processes import lookup
from processes.fingerprint import FORM
from recovery.rules import Action, Rule

#: Each is held against each group of errors that is shown.
MOST = 1_000
NAME_LIMIT, TEXT_LIMIT, SAYS_LIMIT = 100, 500, 1_000


class KnownError(Model):
    __tablename__ = "known_error"
    __table_args__ = (
        sa.CheckConstraint("proposes in ('restart-task', 'restart', 'abort', 'none')", name="proposes_known"),
        sa.CheckConstraint("num_nonnulls(actor, type, fingerprint, text) > 0", name="narrow"),
    )

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=False), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    #: What must hold of a broken task: all that is given, and something is.
    actor: Mapped[str | None]
    #: The class of the error.
    type: Mapped[str | None]
    fingerprint: Mapped[str | None]
    #: A part of class and message.
    text: Mapped[str | None]
    #: What people are told.
    says: Mapped[str]
    proposes: Mapped[str]
    #: Of what is proposed: `reason`.
    parameters: Mapped[Any] = mapped_column(JSONB(none_as_null=True), server_default=sa.text("'{}'"))
    created_by: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=sa.func.now())


KNOWN = cast(sa.Table, KnownError.__table__)
_MATCHED = ("actor", "type", "fingerprint", "text")


def add(session: Session, rule: Rule) -> None:
    """Refused where one has its name, and where it would match everything."""
    values = _checked(session, rule)
    if session.execute(sa.select(sa.func.count()).select_from(KNOWN)).scalar_one() >= MOST:
        raise TooLarge(f"there are {MOST} known errors already: remove some with 'tidemill recover known remove'")
    insert = postgresql.insert(KNOWN).values(**values, created_by=audit.actor()).on_conflict_do_nothing()
    if session.execute(insert.returning(KNOWN.c.id)).first() is None:
        raise BadRequest(f"there is a known error {shown(rule.name)} already: remove it first, or take another name")
    audit.record(session, "known_error.add", rule.name, **values)


def _checked(session: Session, rule: Rule) -> dict[str, Any]:
    whose = "a known error"
    values = {
        "name": checked_line(whose, "name", rule.name, NAME_LIMIT),
        "says": checked_line(whose, "says", rule.says, SAYS_LIMIT),
        "proposes": Action(rule.proposes).value,
        "parameters": _parameters(rule.parameters),
    }
    given = {word: getattr(rule, word) for word in _MATCHED if getattr(rule, word) is not None}
    if not given:
        raise BadRequest(f"{whose} needs an actor, a class, a fingerprint or a text: else it is every error")
    values |= {word: checked_line(whose, word, value, TEXT_LIMIT) for word, value in given.items()}
    if rule.actor is not None:
        values["actor"] = lookup.actor(session, rule.actor)
    if rule.fingerprint is not None and not FORM.fullmatch(rule.fingerprint):
        raise BadRequest(
            f"fingerprint={rule.fingerprint!r} must be 16 hexadecimal digits: see 'tidemill process errors'"
        )
    return values


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    if given.keys() - {"reason"}:
        raise BadRequest(f"parameters={dict(given)!r:.200} may hold a reason, and nothing else")
    return {name: checked_line("a known error", name, value, TEXT_LIMIT) for name, value in given.items()}


def listed(session: Session) -> list[Rule]:
    """By name."""
    rows = session.execute(sa.select(KNOWN).order_by(KNOWN.c.name))
    return [
        Rule(
            row.name,
            row.says,
            Action(row.proposes),
            **{word: getattr(row, word) for word in _MATCHED},
            parameters=row.parameters,
        )
        for row in rows
    ]


def remove(session: Session, name: str) -> None:
    """`NotFound` where there is none, with the nearest name."""
    names = list(session.execute(sa.select(KNOWN.c.name)).scalars())
    if name not in names:
        near = nearest(name, names)
        help_ = f"did you mean {near}?" if near else "'tidemill recover known list' shows those that there are"
        raise NotFound(f"there is no known error {shown(name)}: {help_}")
    session.execute(sa.delete(KNOWN).where(KNOWN.c.name == name))
    audit.record(session, "known_error.remove", name)
