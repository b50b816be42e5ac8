"""What is broken, by kind: failures of an actor that differ in ids only are one group."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import BadRequest
from processes import lookup
from processes.model import BROKEN_TASK, PROCESS
from processes.states import ProcessState

MOST = 1_000


@dataclass(frozen=True)
class Example:
    """The latest task of a group."""

    process_id: int
    number: int
    message: str


@dataclass(frozen=True)
class Group:
    fingerprint: str
    actor: str
    #: The class of the error.
    type: str
    #: Broken tasks, and when the first and the last of them broke.
    count: int
    first_at: datetime
    last_at: datetime
    example: Example


def groups(
    session: Session,
    *,
    since: datetime | None = None,
    name: str | None = None,
    actor: str | None = None,
    limit: int = 50,
) -> list[Group]:
    """Of what is broken now, the largest first. `since`: broke at this time or later; `name`: the type of processes."""
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise BadRequest(f"limit={limit!r:.100} must be a whole number from 1 to {MOST}")
    of = BROKEN_TASK.c
    conditions: list[Any] = [] if since is None else [of.at >= since]
    if actor is not None:
        conditions.append(of.actor == lookup.actor(session, actor))
    if name is not None:
        # A process of which a task is broken is itself.
        this = (PROCESS.c.state == ProcessState.BROKEN, PROCESS.c.name == lookup.process_type(session, name))
        conditions.append(of.process_id.in_(sa.select(PROCESS.c.id).where(*this)))
    return [_group(row) for row in session.execute(_grouped(conditions, limit))]


def _grouped(conditions: list[Any], limit: int) -> sa.Select[Any]:
    of, count = BROKEN_TASK.c, sa.func.count()
    kinds = (
        sa.select(
            of.fingerprint, count.label("count"), sa.func.min(of.at).label("first"), sa.func.max(of.at).label("last")
        )
        .where(*conditions)
        .group_by(of.fingerprint)
        .order_by(count.desc(), of.fingerprint)
        .limit(limit)
        .subquery("kinds")
    )
    one = BROKEN_TASK.alias("one")
    names = ("process_id", "number", "actor", "type", "message")
    # The moment is one of this very group: its latest that the conditions let through.
    this = (one.c.fingerprint == kinds.c.fingerprint, one.c.at == kinds.c.last)
    latest = sa.select(*(one.c[name] for name in names)).where(*this).limit(1).correlate(kinds).lateral("latest")
    query = sa.select(*kinds.c, *latest.c).select_from(kinds.join(latest, sa.true()))
    return query.order_by(kinds.c.count.desc(), kinds.c.fingerprint)


def _group(row: Any) -> Group:
    example = Example(row.process_id, row.number, row.message)
    return Group(row.fingerprint, row.actor, row.type, row.count, row.first, row.last, example)
