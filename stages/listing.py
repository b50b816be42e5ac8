"""The stages as a list: what waits in each, runs and is parked, and under which limits; and what there is of an entity.

Everything is read by names and by index: the code of the stages need not be there, and millions of entities cost no
more than thousands.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app import workers
from app.claims import Lane
from app.clock import Rate
from app.limits import Queue
from stages import depths, lookup
from stages.depths import Depth
from stages.lookup import Known
from stages.model import GUARD, STATE, VISIT, EntityKind, Stage, StageVisit
from stages.state import Stored

#: Of one entity, at most so many stages are listed.
STAGES_MOST = 1000
STAGE, QUEUE = cast(sa.Table, Stage.__table__), cast(sa.Table, Queue.__table__)


@dataclass(frozen=True)
class Listed:
    """`declared`: the limits that the code says; the others are in force. `slots`: of live workers for its queue;
    `low_slots`: for its low lane."""

    kind: str
    name: str
    task: str | None
    mode: str
    depth: Depth
    paused: bool
    #: What its work needs does not answer: nothing is visited until then, and after that one by one.
    rests_why: str | None
    rests_until: datetime | None
    rate_limit: str | None
    burst: float | None
    max_parallel: int | None
    declared: Any
    watches: list[str] | None
    max_attempts: int | None
    slots: int
    low_slots: int
    ask_failures: int
    ask_failure: str | None
    removed_at: datetime | None


def stages(session: Session, kind: str | None = None) -> list[Listed]:
    """By kind and name; those that are not declared any more only where something is left of them."""
    known = [each for each in lookup.known_stages(session) if kind in (None, each.kind)]
    rows = {(row.kind, row.name): row for row in session.execute(sa.select(*STAGE.c))}
    modes = {row[0]: row[1] for row in session.execute(sa.select(EntityKind.kind, EntityKind.mode))}
    names = [each.queue for each in known]
    limits = {row.name: row for row in session.execute(sa.select(*QUEUE.c).where(Queue.name.in_(names)))}
    slots, depth = workers.slots(session), depths.of(session, names)
    return [
        Listed(
            kind=each.kind,
            name=each.name,
            task=each.task,
            mode=modes.get(each.kind, "exclusive"),
            depth=depth[each.queue],
            slots=slots.get(each.queue, 0),
            low_slots=slots.get(f"{each.queue}.{Lane.LOW}", 0),
            **_limits(limits.get(each.queue)),
            **_registered(rows.get((each.kind, each.name))),
        )
        for each in known
        if not each.removed or depth[each.queue] != Depth()
    ]


def _limits(row: Row[Any] | None) -> dict[str, Any]:
    if row is None:
        return {
            "paused": False,
            "rests_why": None,
            "rests_until": None,
            "rate_limit": None,
            "burst": None,
            "max_parallel": None,
        }
    rate = None if row.rate is None else str(Rate(row.rate))
    burst = None if row.rate is None else row.burst
    rests = {"rests_why": row.rests_why, "rests_until": row.rests_until}
    return {"paused": row.paused, **rests, "rate_limit": rate, "burst": burst, "max_parallel": row.max_parallel}


def _registered(row: Row[Any] | None) -> dict[str, Any]:
    """Nobody registers a system stage."""
    words = ("declared", "watches", "max_attempts", "ask_failures", "ask_failure", "removed_at")
    return dict.fromkeys(words) | {"ask_failures": 0} if row is None else {word: getattr(row, word) for word in words}


@dataclass(frozen=True)
class Waiting:
    """`visit_time`: when it may be visited: what was asked for, and the pause after a failure."""

    entity_id: str
    visit_time: datetime
    asked_for: datetime
    attempts: int
    hops: int
    error: str | None


def waiting(
    session: Session, stage: Known, limit: int = 100, *, low: bool = False, ready_only: bool = False
) -> list[Waiting]:
    """What waits in the queue of a stage, the earliest first."""
    lane = Lane.LOW if low else Lane.MAIN
    ready, asked = StageVisit.ready(lane), VISIT.c.low_at if low else VISIT.c.due_at
    query = sa.select(VISIT.c.entity_id, ready, asked, VISIT.c.attempts, VISIT.c.hops, VISIT.c.error)
    query = query.where(VISIT.c.queue == stage.queue, StageVisit.waits_in(lane))
    if ready_only:
        query = query.where(ready <= sa.func.now())
    return [Waiting(*row) for row in session.execute(query.order_by(ready, VISIT.c.entity_id).limit(limit))]


@dataclass(frozen=True)
class Visit:
    """`visit_time`: of what waits, when it may be visited. `again_at`: asked for again while it is visited or
    parked."""

    stage: str
    state: str
    visit_time: datetime | None
    due_at: datetime | None
    low_at: datetime | None
    not_before: datetime | None
    again_at: datetime | None
    again_low_at: datetime | None
    attempts: int
    hops: int
    chain: str | None
    error: str | None
    traceback: str | None
    seen_version: int | None
    failed_at: datetime | None
    claimed_by: str | None
    claimed_at: datetime | None


@dataclass(frozen=True)
class Working:
    """Who works on an entity. `until`: how long that holds without a sign of life; not `live`: that is over, and
    whoever comes next takes over."""

    stage: str
    worker: str | None
    since: datetime | None
    until: datetime
    live: bool


def visits_of(session: Session, kind: str, entity_id: str) -> list[Visit]:
    """In the queues of which stages an entity is, by their names."""
    c, waits = VISIT.c, VISIT.c.state == "waiting"
    at = sa.case((waits, sa.func.greatest(sa.func.least(c.due_at, c.low_at), c.not_before)))
    query = sa.select(
        *(c.stage, sa.cast(c.state, sa.Text), at, c.due_at, c.low_at, c.not_before, c.again_at, c.again_low_at),
        *(c.attempts, c.hops, c.chain, c.error, c.traceback, c.seen_version, c.failed_at, c.claimed_by, c.claimed_at),
    )
    query = query.where(c.kind == kind, c.entity_id == entity_id).order_by(c.stage).limit(STAGES_MOST)
    return [Visit(*row) for row in session.execute(query)]


def working_on(session: Session, kind: str, entity_id: str) -> list[Working]:
    """The one stage that works on it in exclusive mode, and whoever else does: the system stage, or, in optimistic
    mode, any."""
    mine = sa.and_(VISIT.c.kind == kind, VISIT.c.entity_id == entity_id, VISIT.c.pass_key.is_not(None))
    running = sa.select(
        *(
            VISIT.c.stage,
            VISIT.c.pass_key,
            VISIT.c.claimed_by,
            VISIT.c.claimed_at,
            VISIT.c.recovery_time.label("until"),
        ),
        (VISIT.c.recovery_time > sa.func.now()).label("live"),
    )
    runs = {row.pass_key: row for row in session.execute(running.where(mine).order_by(VISIT.c.stage))}
    query = sa.select(GUARD.c.stage, GUARD.c.pass_key, GUARD.c.until, (GUARD.c.until > sa.func.now()).label("live"))
    guard = session.execute(query.where(GUARD.c.kind == kind, GUARD.c.entity_id == entity_id)).one_or_none()
    found = []
    if guard is not None:
        run = runs.pop(guard.pass_key, None)
        by, since = (None, None) if run is None else (run.claimed_by, run.claimed_at)
        found.append(Working(guard.stage, by, since, guard.until, bool(guard.live)))
    return found + [
        Working(row.stage, row.claimed_by, row.claimed_at, row.until, bool(row.live)) for row in runs.values()
    ]


@dataclass(frozen=True)
class State:
    stage: str
    stored: Stored
    changed_at: datetime


def states_of(session: Session, kind: str, entity_id: str) -> list[State]:
    """What the stages keep beside an entity, by their names."""
    c = STATE.c
    query = sa.select(c.stage, c.type_url, c.value, c.version, c.changed_at)
    query = query.where(c.kind == kind, c.entity_id == entity_id).order_by(c.stage).limit(STAGES_MOST)
    return [
        State(stage, Stored(type_url, bytes(value), version), changed_at)
        for stage, type_url, value, version, changed_at in session.execute(query)
    ]
