"""Forgetting processes that ended long ago: by their type, counted from their end, in batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.arrays import Array
from app.checks import limited
from app.db import transaction
from processes.model import ANSWER, BROKEN_TASK, DECISION, EDGE, GRAPH, PREFERENCES, PROCESS, TASK

LIMIT = 500
#: That are forgotten in one transaction; more only of a single process.
TASKS_MOST = 20_000


#: Of rows of `process`: what others still want of them. Who does says so when it is imported.
wanted: list[sa.ColumnElement[bool]] = []


@dataclass(frozen=True)
class Report:
    forgotten: int = 0
    more: bool = False


@limited
def run_once(limit: int = LIMIT) -> Report:
    """Forgets at most `limit` of them. Any number may run at once."""
    with transaction() as session:
        # The graph first, as everybody; what somebody works on is left to the next time.
        rows = session.execute(_old(), {"p_limit": limit}).all()
        graphs = session.execute(_graphs(), {"p_ids": [row.id for row in rows]}).all()
        locked, tasks = {row.process_id for row in graphs}, 0
        ids: list[int] = []
        for row in rows:
            if row.id not in locked and row.begun_at is not None:
                continue
            tasks += row.tasks or 0
            if ids and tasks > TASKS_MOST:
                break
            ids.append(row.id)
        gone = session.execute(_locking(), {"p_ids": ids}).scalars().all()
        if gone:
            forget(session, gone)
    return Report(len(gone), more=len(gone) > 0 and len(rows) == limit)


@cache
def _old() -> sa.Select[Any]:
    """One index range for each type."""
    ended = (
        sa.select(PROCESS.c.id, PROCESS.c.begun_at)
        .where(PROCESS.c.name == PREFERENCES.c.name, PROCESS.c.ended_at < sa.func.now() - PREFERENCES.c.retention)
        .where(*(~each for each in wanted))
        .order_by(PROCESS.c.ended_at)
        .limit(sa.bindparam("p_limit", type_=sa.Integer))
        .correlate(PREFERENCES)
        .lateral("ended")
    )
    joined = PREFERENCES.join(ended, sa.true()).outerjoin(GRAPH, GRAPH.c.process_id == ended.c.id)
    found = sa.select(ended.c.id, ended.c.begun_at, GRAPH.c.tasks).select_from(joined).where(PREFERENCES.c.decider)
    return found.limit(sa.bindparam("p_limit", type_=sa.Integer))


@cache
def _graphs() -> sa.Select[Any]:
    these = GRAPH.c.process_id == sa.any_(sa.bindparam("p_ids", type_=Array(sa.BigInteger)))
    found = sa.select(GRAPH.c.process_id).where(these).order_by(GRAPH.c.process_id)
    return found.with_for_update(skip_locked=True)


@cache
def _locking() -> sa.Select[Any]:
    """Looked at again: an operator may have restarted one meanwhile."""
    these = PROCESS.c.id == sa.any_(sa.bindparam("p_ids", type_=Array(sa.BigInteger)))
    found = sa.select(PROCESS.c.id).where(these, PROCESS.c.ended_at.is_not(None)).order_by(PROCESS.c.id)
    return found.with_for_update(skip_locked=True)


def forget(session: Session, ids: Sequence[int]) -> None:
    """With all that belongs to them."""
    these = sa.cast(list(ids), Array(sa.BigInteger))
    for table in (EDGE, DECISION, TASK, BROKEN_TASK, ANSWER, GRAPH):
        session.execute(sa.delete(table).where(table.c.process_id == sa.any_(these)))
    session.execute(sa.delete(PROCESS).where(PROCESS.c.id == sa.any_(these)))
