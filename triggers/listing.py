"""The reactive tasks as a list: what each is doing, and its last run; in one query. Runs of one, and pools."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.claims.model import is_running, is_waiting
from app.clock import Rate
from app.limits import Queue
from triggers import lookup
from triggers.definition import queue_of
from triggers.model import LIVE, RUN, TASK, ReactivePool, ReactiveTask, TaskRun

STATES = ("waiting", "running", "idle", "resting", "paused", "quarantined", "removed")


@dataclass(frozen=True)
class Listed:
    """`state` as `triggers.why.Why` has it, without looking at the trigger: `idle` may be about to start."""

    name: str
    pool: str
    priority: int
    state: str
    reason: str | None
    failures: int
    run_id: int | None
    last_run: str | None
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True)
class PastRun:
    id: int
    task: str
    state: str
    kind: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    attempts: int
    checked: Any
    outputs: Any
    error: str | None
    record: bool
    window_from: datetime | None
    window_to: datetime | None
    requested_by: str | None
    claimed_by: str | None


@dataclass(frozen=True)
class PoolFigures:
    """`declared`: what the code says; None: nothing. The rest is in force."""

    name: str
    ageing: timedelta
    max_hold: timedelta | None
    declared: Any
    max_parallel: int | None
    rate_limit: str | None
    paused: bool
    tasks: int
    waiting: int
    running: int


def tasks(session: Session, *, pool: str | None = None, state: str | None = None, limit: int = 1000) -> list[Listed]:
    live = sa.select(*RUN.c).where(LIVE).subquery("live")
    last = (
        sa.select(*RUN.c).where(TaskRun.task == ReactiveTask.name).order_by(TaskRun.id.desc()).limit(1).lateral("last")
    )
    now = sa.func.now()
    words = sa.case(
        (live.c.id.is_not(None), sa.cast(live.c.state, sa.Text)),
        (TASK.c.removed_at.is_not(None), "removed"),
        (TASK.c.paused, "paused"),
        (TASK.c.quarantined_at.is_not(None), "quarantined"),
        (TASK.c.start_after > now, "resting"),
        else_="idle",
    )
    reason = sa.case((TASK.c.quarantined_at.is_not(None), TASK.c.quarantine_reason), else_=live.c.error)
    query = sa.select(
        TASK.c.name,
        TASK.c.pool,
        TASK.c.priority,
        words.label("word"),
        reason,
        TASK.c.failures,
        last.c.id,
        sa.cast(last.c.state, sa.Text),
        last.c.started_at,
        last.c.ended_at,
    ).select_from(TASK.outerjoin(live, live.c.task == TASK.c.name).outerjoin(last, sa.true()))
    if pool is not None:
        query = query.where(TASK.c.pool == pool)
    query = query.where(words == state) if state is not None else query.where(words != "removed")
    return [Listed(*row) for row in session.execute(query.order_by(TASK.c.name).limit(limit))]


def runs(session: Session, task: str, *, limit: int = 20, before: int | None = None) -> list[PastRun]:
    """The newest first; of those that are older than the run `before`."""
    c = RUN.c
    query = sa.select(
        *(c.id, c.task, sa.cast(c.state, sa.Text), sa.cast(c.kind, sa.Text), c.created_at, c.started_at, c.ended_at),
        *(
            c.attempts,
            c.checked,
            c.outputs,
            c.error,
            c.record,
            c.window_from,
            c.window_to,
            c.requested_by,
            c.claimed_by,
        ),
    )
    if before is not None:
        query = query.where(c.id < before)
    rows = session.execute(query.where(c.task == task).order_by(c.id.desc()).limit(limit))
    return [PastRun(*row) for row in rows]


def pool(session: Session, name: str) -> PoolFigures:
    """Its limits as they are in force, and what is in it."""
    queue = queue_of(lookup.pool(session, name))

    def count(*condition: Any) -> Any:
        return sa.select(sa.func.count()).where(*condition).scalar_subquery()

    row = session.execute(
        sa.select(
            *(ReactivePool.name, ReactivePool.ageing, ReactivePool.max_hold, ReactivePool.declared),
            *(Queue.max_parallel, Queue.rate, Queue.paused),
            count(ReactiveTask.pool == name, ReactiveTask.removed_at.is_(None)).label("tasks"),
            count(TaskRun.queue == queue, is_waiting(TaskRun)).label("waiting"),
            count(TaskRun.queue == queue, is_running(TaskRun)).label("running"),
        )
        .outerjoin(Queue, Queue.name == queue)
        .where(ReactivePool.name == name)
    ).one()
    rate = None if row.rate is None else str(Rate(row.rate))
    figures = (row.max_parallel, rate, bool(row.paused), row.tasks, row.waiting, row.running)
    return PoolFigures(row.name, row.ageing, row.max_hold, row.declared, *figures)
