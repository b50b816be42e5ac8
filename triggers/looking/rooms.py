"""The pools, all at once: limits in force, what waits and works in each, and the slots that are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Session

from app import workers
from app.claims.model import is_running, is_waiting
from app.clock import Rate
from app.limits import Queue, kept_now
from app.ranks import Rank, most_rank
from triggers.definition import queue_of
from triggers.model import LIVE, RUN, TASK, ReactivePool, TaskRun


@dataclass(frozen=True)
class Room:
    """A pool as it is now. `slots`: of live workers that take it. `kept`: the ranks for which slots are kept."""

    name: str
    max_parallel: int | None
    rate_limit: str | None
    paused: bool
    ageing: timedelta
    max_hold: timedelta | None
    declared: Any
    waiting: int
    running: int
    oldest: datetime | None
    kept: tuple[Rank, ...]
    slots: int

    @property
    def queue(self) -> str:
        return queue_of(self.name)

    @property
    def full(self) -> bool:
        return self.max_parallel is not None and self.running >= self.max_parallel

    @property
    def most(self) -> Rank | None:
        """The largest rank that may start now; None: nothing may."""
        return most_rank(self.max_parallel, self.running, self.kept)

    @property
    def as_declared(self) -> bool:
        """The code declares no other limits than those in force."""
        here = (self.max_parallel, self.rate_limit)
        return self.declared is None or (self.declared["max_parallel"], self.declared["rate_limit"]) == here

    def stands(self, rank: Rank, run_id: int) -> str:
        """Why a run of this rank that may start waits."""
        if self.paused:
            return f"run {run_id} waits: pool {self.name} is paused"
        if not self.slots:
            return f"run {run_id} waits: no live worker takes pool {self.name}"
        if self.full:
            return f"run {run_id} waits: pool {self.name} is full, {self.running} of {self.max_parallel} run"
        if self.holds(rank):
            return f"run {run_id} is held: free slots of pool {self.name} are kept for what is more important"
        return f"run {run_id} waits for a worker of pool {self.name}, with {self.waiting - 1} others"

    def holds(self, rank: Rank) -> bool:
        """T21: slots are free, and all of them are kept for what is more important."""
        return bool(self.kept) and not self.full and (self.most is None or rank > self.most)


def rooms(session: Session) -> dict[str, Room]:
    kept = sa.func.array(kept_now().scalar_subquery(), type_=ARRAY(sa.SmallInteger))
    live = (
        sa.select(
            RUN.c.queue,
            sa.func.count().filter(is_waiting(TaskRun)).label("waiting"),
            sa.func.count().filter(is_running(TaskRun)).label("running"),
            sa.func.min(RUN.c.created_at).filter(is_waiting(TaskRun)).label("oldest"),
        )
        .where(LIVE)
        .group_by(RUN.c.queue)
        .subquery("live")
    )
    pool, queue = ReactivePool, queue_of("") + ReactivePool.name
    query = (
        sa.select(
            *(pool.name, Queue.max_parallel, Queue.rate, Queue.paused, pool.ageing, pool.max_hold, pool.declared),
            *(live.c.waiting, live.c.running, live.c.oldest, kept.label("kept")),
        )
        .outerjoin(Queue, Queue.name == queue)
        .outerjoin(live, live.c.queue == queue)
        .order_by(pool.name)
    )
    slots = workers.slots(session)
    return {row.name: _room(row, slots) for row in session.execute(query)}


def _room(row: sa.Row[Any], slots: Mapping[str, int]) -> Room:
    return Room(
        row.name,
        row.max_parallel,
        None if row.rate is None else str(Rate(row.rate)),
        bool(row.paused),
        row.ageing,
        row.max_hold,
        row.declared,
        row.waiting or 0,
        row.running or 0,
        row.oldest,
        tuple(row.kept or ()),
        slots.get(queue_of(row.name), 0),
    )


def counts(session: Session) -> dict[str, int]:
    """How many declared tasks each pool has."""
    query = sa.select(TASK.c.pool, sa.func.count()).where(TASK.c.removed_at.is_(None)).group_by(TASK.c.pool)
    return {row[0]: row[1] for row in session.execute(query)}
