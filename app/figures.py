"""What `status` and `doctor` count, each in one query."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import workers
from app.arrays import Array
from app.claims import Claimable, Lane
from app.claims import depths as claimable
from app.clock import Rate
from app.jobs.model import JobLog, Outcome
from app.limits import Queue, kept_now
from app.schema import CLAIMABLE
from app.words import COUNTED
from app.workers import GONE, Worker
from processes.listing import Listed
from processes.model import PREFERENCES, PROCESS
from processes.model import queue_of as actor_queue
from processes.states import ProcessState
from stages import depths, listing
from stages.definition import PREFIX, RESWEEP
from stages.model import StageVisit
from triggers import missed
from triggers.model import LIVE, TASK, ReactiveTask, RunState, TaskRun

RECENT = timedelta(minutes=5)
#: A process that was registered is begun within moments.
NEVER_BEGUN = timedelta(minutes=1)
STAGES, LOW = f"{PREFIX}.", f".{Lane.LOW}"
HOLDS = {"resweep_part": "parts of walks", "decision": "tasks"}
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
    #: What its work needs does not answer: nothing is started until then, and after that one by one.
    rests_why: str | None = None
    rests_until: datetime | None = None
    max_parallel: int | None = None
    rate: str | None = None
    burst: float | None = None
    #: Slots that are kept for work of a higher priority.
    kept: int = 0
    #: What waits in it: `jobs`, `runs`, or both; `visits` of a stage; `tasks` of an actor.
    holds: str = "jobs"
    #: Its work is done by who polls for it; no worker takes it.
    outside: bool = False

    @property
    def stands_still(self) -> bool:
        """Work is ready, nobody has forbidden it, and no live worker takes it."""
        return self.ready > 0 and not self.paused and self.slots == 0 and not self.outside

    @property
    def stirs(self) -> bool:
        """Something is in it, or it is held up."""
        return bool(self.ready or self.later or self.running or self.parked or self.paused or self.rests_why)


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
class StageFigures:
    """`stages` are those that are declared. Visits of all stages; of a stage with very many, as many as are counted.
    `late`: ready for longer than a minute, and not paused. `failing`: stages whose should_process raised."""

    stages: int
    paused: int
    failing: int
    ready: int
    late: int
    later: int
    low: int
    running: int
    parked: int
    oldest: timedelta | None


@dataclass(frozen=True)
class ProcessFigures:
    """By state; of very many, as many as are counted. `finished` and `aborted` in the last minutes. `never_begun`:
    registered for longer than a minute, `oldest` of them for so long. Of tasks: `ready`, `later`, `in_work`,
    `broken_tasks`."""

    deciders: int
    actors: int
    registered: int
    active: int
    broken: int
    finished: int
    aborted: int
    never_begun: int
    oldest: timedelta | None
    ready: int
    later: int
    in_work: int
    broken_tasks: int


@dataclass(frozen=True)
class ReactiveFigures:
    """`tasks` are those that are declared; `done` and `failed` count runs that ended in the last minutes, `missed`
    windows that closed unused."""

    tasks: int
    running: int
    waiting: int
    paused: int
    quarantined: int
    done: int
    failed: int
    missed: int


def queues(session: Session) -> list[QueueFigures]:
    """Those with work, with limits, or with a live worker."""
    slots = workers.slots(session)
    counts = _counted(session)
    kept = sa.select(sa.func.count()).select_from(kept_now().subquery()).scalar_subquery()
    limits = {row.Queue.name: row for row in session.execute(sa.select(Queue, kept.label("kept")))}
    outside = {
        actor_queue(name) for name in session.scalars(sa.select(PREFERENCES.c.name).where(PREFERENCES.c.outside))
    }
    found = []
    # Every worker takes the low lanes and walks of all its stages; where they are empty, they are not worth a line.
    named = {*counts, *limits, *(each for each in slots if not _beside(each))}
    for name in sorted(named):
        values: dict[str, Any] = counts.get(name, {})
        values.pop("queue", None)
        if (row := limits.get(name.removesuffix(LOW) if name.startswith(STAGES) else name)) is not None:
            limit = row.Queue
            values |= {"rests_why": limit.rests_why, "rests_until": limit.rests_until}
            values |= {"paused": limit.paused, "max_parallel": limit.max_parallel, "kept": row.kept}
            if limit.rate is not None:
                values |= {"rate": str(Rate(limit.rate)), "burst": limit.burst}
        found.append(QueueFigures(name, slots=slots.get(name, 0), outside=name in outside, **values))
    return found


def _beside(queue: str) -> bool:
    return queue.startswith(STAGES) and queue.endswith((LOW, f".{RESWEEP}"))


def _counted(session: Session) -> dict[str, dict[str, Any]]:
    """By queue; jobs may have been put into the queue of a pool."""
    found = _visits(session)
    for model in CLAIMABLE:
        if model is StageVisit:
            continue
        holds = HOLDS.get(model.__tablename__, f"{model.__tablename__}s")
        for queue, counts in _counts(session, model).items():
            before, words = found.get(queue), counts | {"queue": queue, "holds": holds}
            found[queue] = words if before is None else _sum(before, words)
    return found


def _visits(session: Session) -> dict[str, dict[str, Any]]:
    """By lane. There may be millions of timers, so these are not counted one by one."""
    found = {}
    for name, deep in depths.of(session, depths.queues(session)).items():
        main = {"ready": deep.ready, "later": deep.later, "running": deep.running, "parked": deep.parked}
        low = {"ready": deep.low_ready, "later": deep.low_later, "running": 0, "parked": 0}
        found[name] = main | {"queue": name, "oldest": deep.oldest, "holds": "visits"}
        if any(low.values()):
            found[name + LOW] = low | {"queue": name + LOW, "oldest": deep.low_oldest, "holds": "visits"}
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
            count(declared, TASK.c.paused),
            count(declared, ReactiveTask.quarantined_at.is_not(None)),
            count(ended, TaskRun.state == RunState.DONE),
            count(ended, TaskRun.state == RunState.FAILED),
        )
    ).one()
    return ReactiveFigures(*row, missed=missed.count(session, recent))


def stages(session: Session) -> StageFigures:
    found = listing.stages(session)
    declared = [each for each in found if each.task is not None and each.removed_at is None]
    deep = [each.depth for each in found]
    return StageFigures(
        stages=len(declared),
        paused=sum(each.paused for each in found),
        failing=sum(each.ask_failures > 0 for each in declared),
        ready=sum(each.ready for each in deep),
        late=sum(each.depth.late for each in found if not each.paused),
        later=sum(each.later for each in deep),
        low=sum(each.low_ready + each.low_later for each in deep),
        running=sum(each.running for each in deep),
        parked=sum(each.parked for each in deep),
        oldest=max((each.depth.oldest for each in found if each.depth.oldest and not each.paused), default=None),
    )


def processes(session: Session, actors: Sequence[Listed], recent: timedelta = RECENT) -> ProcessFigures:
    """`actors`: as they are listed."""
    now = sa.func.now()
    registered = PROCESS.c.state == sa.literal_column(f"'{ProcessState.REGISTERED}'")
    long = sa.and_(registered, PROCESS.c.registered_at < now - NEVER_BEGUN)

    def count(condition: Any) -> Any:
        rows = sa.select(sa.literal(1)).where(condition).limit(COUNTED).subquery()
        return sa.select(sa.func.count()).select_from(rows).scalar_subquery()

    row = session.execute(
        sa.select(
            count(registered),
            count(PROCESS.c.state == ProcessState.ACTIVE),
            count(PROCESS.c.state == ProcessState.BROKEN),
            count(long),
            sa.select(now - sa.func.min(PROCESS.c.registered_at)).where(long).scalar_subquery(),
        )
    ).one()
    # By the index of those that ended, which begins with the type.
    ended = sa.select(PROCESS.c.state, sa.func.count()).where(
        PROCESS.c.name == sa.any_(sa.cast([each.name for each in actors if each.decider], Array(sa.Text))),
        PROCESS.c.ended_at > now - recent,
    )
    ends = {row[0]: row[1] for row in session.execute(ended.group_by(PROCESS.c.state))}
    return ProcessFigures(
        deciders=sum(each.decider for each in actors),
        actors=sum(not each.decider for each in actors),
        registered=row[0],
        active=row[1],
        broken=row[2],
        finished=ends.get(ProcessState.FINISHED, 0),
        aborted=ends.get(ProcessState.ABORTED, 0),
        never_begun=row[3],
        oldest=row[4],
        ready=sum(each.ready for each in actors),
        later=sum(each.later for each in actors),
        in_work=sum(each.in_work for each in actors),
        broken_tasks=sum(each.broken for each in actors),
    )


def _counts(session: Session, model: type[Claimable]) -> dict[str, dict[str, Any]]:
    """By queue; of very many, as many as are counted."""
    found = defaultdict[str, dict[str, Any]](
        lambda: {"ready": 0, "later": 0, "running": 0, "parked": 0, "oldest": None}
    )
    for row in session.execute(claimable.waiting(model, Lane.MAIN, COUNTED)):
        found[row.queue] |= {"ready": int(row.ready), "later": int(row.later), "oldest": row.oldest}
    for state, query in claimable.marked(model, COUNTED):
        for queue, count in session.execute(query):
            found[queue][state] = count
    return found


def since(moment: Any) -> Any:
    """Of a sign of life. One that came after this transaction had begun is as old as nothing, and not younger."""
    return sa.type_coerce(sa.func.greatest(sa.func.now() - moment, sa.literal(timedelta(0), sa.Interval)), sa.Interval)


def live_and_gone(session: Session) -> list[WorkerFigures]:
    age = since(Worker.beat_at)
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
