"""What `status` and `doctor` count, each in one query."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import workers
from app.claims import Lane
from app.claims.model import is_running, is_waiting
from app.clock import Rate
from app.jobs.model import JobLog, Outcome
from app.limits import Queue
from app.schema import CLAIMABLE
from app.workers import GONE, Worker
from triggers.model import LIVE, ReactiveTask, RunState, TaskRun

RECENT = timedelta(minutes=5)
_NO_RUN = (Outcome.CANCELLED, Outcome.EXPIRED, Outcome.ABSORBED)


@dataclass(frozen=True)
class QueueFigures:
    name: str
    ready: int = 0
    later: int = 0
    running: int = 0
    parked: int = 0
    oldest: timedelta | None = None
    slots: int = 0
    paused: bool = False
    max_parallel: int | None = None
    rate: str | None = None
    burst: float | None = None
    #: What waits in it: `jobs`, `runs`, or both.
    holds: str = "jobs"

    @property
    def stands_still(self) -> bool:
        """Work is ready, nobody has forbidden it, and no live worker takes it."""
        return self.ready > 0 and not self.paused and self.slots == 0


@dataclass(frozen=True)
class WorkerFigures:
    name: str
    queues: list[str]
    slots: int
    started_at: datetime
    last_beat: timedelta
    alive: bool


@dataclass(frozen=True)
class Executions:
    """Of the last minutes."""

    minutes: float
    done: int
    failed: int
    retried: int
    lost: int

    @property
    def done_per_minute(self) -> float:
        return round(self.done / self.minutes, 1)

    @property
    def failed_per_minute(self) -> float:
        return round(self.failed / self.minutes, 1)


@dataclass(frozen=True)
class ReactiveFigures:
    """`tasks` are those that are declared; `done` and `failed` count runs that ended in the last minutes."""

    tasks: int
    running: int
    waiting: int
    paused: int
    quarantined: int
    done: int
    failed: int


def queues(session: Session) -> list[QueueFigures]:
    """Those with work, with limits, or with a live worker."""
    slots = workers.slots(session)
    counts = _counted(session)
    limits = {row.name: row for row in session.execute(sa.select(Queue)).scalars()}
    found = []
    for name in sorted({*slots, *counts, *limits}):
        values: dict[str, Any] = counts.get(name, {})
        values.pop("queue", None)
        if (limit := limits.get(name)) is not None:
            values |= {"paused": limit.paused, "max_parallel": limit.max_parallel}
            if limit.rate is not None:
                values |= {"rate": str(Rate(limit.rate)), "burst": limit.burst}
        found.append(QueueFigures(name, slots=slots.get(name, 0), **values))
    return found


def _counted(session: Session) -> dict[str, dict[str, Any]]:
    """By queue; jobs may have been put into the queue of a pool."""
    found: dict[str, dict[str, Any]] = {}
    for model in CLAIMABLE:
        holds = f"{model.__tablename__}s"
        for row in session.execute(_counts(model)).mappings():
            before, words = found.get(row["queue"]), dict(row) | {"holds": holds}
            found[row["queue"]] = words if before is None else _sum(before, words)
    return found


def _sum(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    ages = [each["oldest"] for each in (one, other) if each["oldest"] is not None]
    both = {word: one[word] + other[word] for word in ("ready", "later", "running", "parked")}
    return both | {
        "queue": one["queue"],
        "oldest": max(ages, default=None),
        "holds": f"{one['holds']} and {other['holds']}",
    }


def reactive(session: Session, recent: timedelta = RECENT) -> ReactiveFigures:
    declared = ReactiveTask.removed_at.is_(None)

    def count(*conditions: sa.ColumnElement[bool]) -> Any:
        return sa.select(sa.func.count()).where(*conditions).scalar_subquery()

    ended = TaskRun.ended_at > sa.func.now() - recent
    row = session.execute(
        sa.select(
            count(declared),
            count(LIVE, TaskRun.state == RunState.RUNNING),
            count(LIVE, TaskRun.state == RunState.WAITING),
            count(declared, ReactiveTask.paused.is_(True)),
            count(declared, ReactiveTask.quarantined_at.is_not(None)),
            count(ended, TaskRun.state == RunState.DONE),
            count(ended, TaskRun.state == RunState.FAILED),
        )
    ).one()
    return ReactiveFigures(*row)


def _counts(model: Any) -> sa.Select[Any]:
    ready_at = model.ready(Lane.MAIN)
    state = sa.cast(model.state, sa.Text)
    waiting, now = is_waiting(model), sa.func.now()
    parked = state == model.PARKED
    ready = sa.and_(waiting, ready_at <= now)

    def count(condition: sa.ColumnElement[bool]) -> Any:
        return sa.func.count().filter(condition)

    query = sa.select(
        model.queue,
        count(ready).label("ready"),
        count(sa.and_(waiting, ready_at > now)).label("later"),
        count(is_running(model)).label("running"),
        count(parked).label("parked"),
        (now - sa.func.min(ready_at).filter(ready)).label("oldest"),
    )
    return query.where(sa.or_(waiting, is_running(model), parked)).group_by(model.queue)


def live_and_gone(session: Session) -> list[WorkerFigures]:
    age = sa.type_coerce(sa.func.now() - Worker.beat_at, sa.Interval)
    rows = session.execute(sa.select(Worker, age.label("age"), (age < GONE).label("alive")).order_by(Worker.name))
    return [
        WorkerFigures(worker.name, sorted(worker.queues), worker.slots, worker.started_at, last, alive)
        for worker, last, alive in rows
    ]


def executions(session: Session, recent: timedelta = RECENT) -> Executions:
    query = (
        sa.select(JobLog.outcome, sa.func.count())
        .where(JobLog.ended_at > sa.func.now() - recent, JobLog.outcome.not_in(_NO_RUN))
        .group_by(JobLog.outcome)
    )
    counts = {row[0]: row[1] for row in session.execute(query)}
    named = {
        word: counts.get(outcome, 0)
        for word, outcome in (
            ("done", Outcome.DONE),
            ("failed", Outcome.FAILED),
            ("retried", Outcome.RETRIED),
            ("lost", Outcome.LOST),
        )
    }
    return Executions(recent.total_seconds() / 60, **named)
