"""Visits that are parked, grouped by what went wrong.

Two errors are of one group when they differ only in what changes from entity to entity: its id, numbers, hexadecimal
digits, UUIDs, and what stands in quotes. Only the first line counts. The database finds the groups, so that a hundred
thousand errors need not come here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.arrays import Array
from app.claims import distinct_prefix
from stages.depths import PARKED
from stages.lookup import Known
from stages.model import VISIT, StageVisit

#: Of each stage, the latest so many are grouped.
GROUPED = 100_000
LINE_MOST, SHOWN = 500, 1000
#: A shorter id may well be part of a word.
ID_LEAST = 4
_QUOTED = r"""(?<![[:alnum:]])'[^']*'(?![[:alnum:]])|"[^"]*"|`[^`]*`"""
_NUMBERS = (
    "[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|0x[0-9a-fA-F]+|"
    r"(?<![[:alnum:]])[0-9a-fA-F]{16,}(?![[:alnum:]])|[0-9]+([.,][0-9]+)*"
)


@dataclass(frozen=True)
class Selection:
    """Which parked visits: everything given must hold. Without `stages`, of all; text in `error` is searched for as a
    part."""

    stages: tuple[Known, ...] | None = None
    ids: tuple[str, ...] = ()
    error: str | None = None
    group: str | None = None

    def matches(self) -> sa.ColumnElement[bool]:
        found: list[sa.ColumnElement[bool]] = []
        if self.ids:
            found.append(VISIT.c.entity_id == sa.any_(sa.cast(list(self.ids), Array(sa.Text))))
        if self.error is not None:
            found.append(VISIT.c.error.icontains(self.error, autoescape=True))
        if self.group is not None:
            found.append(_group() == self.group)
        return sa.and_(sa.true(), *found)


@dataclass(frozen=True)
class Group:
    """`name`: by which it can be redriven. `error`, `entity_id`: of one of them."""

    name: str
    kind: str
    stage: str
    count: int
    error: str | None
    entity_id: str
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True)
class Parked:
    kind: str
    stage: str
    entity_id: str
    group: str
    error: str | None
    attempts: int
    failed_at: datetime
    asked_again: bool
    seen_version: int | None


def _group() -> sa.ColumnElement[str]:
    # The id compares by bytes and the error does not: one must be chosen.
    line = sa.func.left(sa.func.split_part(sa.func.coalesce(VISIT.c.error, ""), sa.func.chr(10), 1), LINE_MOST)
    text: Any = sa.collate(line, "C")
    long = sa.func.length(VISIT.c.entity_id) >= ID_LEAST
    text = sa.case((long, sa.func.replace(text, VISIT.c.entity_id, "…")), else_=text)
    for pattern, mark in ((_QUOTED, "…"), (_NUMBERS, "#")):
        text = sa.func.regexp_replace(text, pattern, mark, "g")
    return sa.func.left(sa.func.md5(text), 8)


def queues(session: Session, selection: Selection) -> list[str]:
    """Those in which anything is parked."""
    found = set(session.execute(sa.select(distinct_prefix(StageVisit, PARKED).c.queue)).scalars())
    return sorted(found if selection.stages is None else found & {each.queue for each in selection.stages})


def _latest(names: Sequence[str], selection: Selection, limit: int, *columns: Any) -> Any:
    queue = sa.func.unnest(sa.cast(list(names), Array(sa.Text))).table_valued("name").render_derived(name="queue")
    rows = (
        sa.select(VISIT.c.kind, VISIT.c.stage, VISIT.c.entity_id, VISIT.c.failed_at, *columns)
        .where(VISIT.c.queue == queue.c.name, PARKED, selection.matches())
        .order_by(VISIT.c.failed_at.desc())
        .limit(limit)
        .lateral("latest")
    )
    return rows, sa.join(queue, rows, sa.true())


def groups(session: Session, selection: Selection, limit: int = 50) -> list[Group]:
    """The largest first."""
    error = sa.func.left(VISIT.c.error, SHOWN).label("error")
    rows, source = _latest(queues(session, selection), selection, GROUPED, error, _group().label("name"))
    c, count = rows.c, sa.func.count()
    query = (
        sa.select(c.name, c.kind, c.stage, count, sa.func.min(c.error), sa.func.min(c.entity_id))
        .add_columns(sa.func.min(c.failed_at), sa.func.max(c.failed_at))
        .select_from(source)
        .group_by(c.kind, c.stage, c.name)
        .order_by(count.desc(), c.kind, c.stage, c.name)
        .limit(limit)
    )
    return [Group(*row) for row in session.execute(query)]


def count(session: Session, selection: Selection) -> dict[str, int]:
    """By queue; of each, among the latest `GROUPED` that match."""
    names = queues(session, selection)
    rows, source = _latest(names, selection, GROUPED, VISIT.c.queue)
    query = sa.select(rows.c.queue, sa.func.count()).select_from(source).group_by(rows.c.queue)
    return {row[0]: row[1] for row in session.execute(query.order_by(rows.c.queue))}


def latest(session: Session, selection: Selection, limit: int = 20) -> list[Parked]:
    """The latest first."""
    again = sa.or_(VISIT.c.again_at.is_not(None), VISIT.c.again_low_at.is_not(None)).label("again")
    more = (_group().label("name"), VISIT.c.error, VISIT.c.attempts, again, VISIT.c.seen_version)
    rows, source = _latest(queues(session, selection), selection, limit, *more)
    c = rows.c
    query = (
        sa.select(c.kind, c.stage, c.entity_id, c.name, c.error, c.attempts, c.failed_at, c.again, c.seen_version)
        .select_from(source)
        .order_by(c.failed_at.desc(), c.kind, c.stage, c.entity_id)
        .limit(limit)
    )
    return [Parked(*row) for row in session.execute(query)]
