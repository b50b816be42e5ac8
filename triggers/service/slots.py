"""T21 in the database: which slots are kept for whom, worked out from what the service has in mind and the live runs.

What a claim obeys stands on the row of the pool's queue, under the lock that it takes anyway. What a person reads, and
how long each slot has been kept, is in `reactive_hold`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app.limits import Queue
from triggers.definition import queue_of
from triggers.holding import Hold, LiveRun, Plan, PoolNow, TaskNow, plan
from triggers.instants import Instant, to_datetime, to_instant
from triggers.model import LIVE, RUN, ReactiveHold, ReactivePool, RunState
from triggers.pools import MAX_HOLD
from triggers.service.memory import Memory

_MICROSECOND = timedelta(microseconds=1)
HOLD = cast(sa.Table, ReactiveHold.__table__)


def renew(session: Session, memory: Memory, now: Instant) -> Plan | None:
    """Keeps slots as things are at this moment; what was kept and is not needed any more is free again."""
    if not memory.holding and not memory.producing:
        return None
    holds = {(row.task, row.run_id): row for row in session.execute(sa.select(*HOLD.c))}
    memory.holding = bool(holds)
    if not holds and not memory.producing:
        return None
    live: dict[str, Any] = {row.task: row for row in session.execute(_LIVE_RUNS)}
    if not holds and not live:
        return None
    memory.holding = True
    pools = _pools(session)
    # A task that is not declared any more waits for nothing.
    known = [Hold(*key, to_instant(row.since)) for key, row in holds.items() if key[0] in memory.tasks]
    made = plan(now, _facts(memory, live, now), pools.values(), known)
    _write_queues(session, made)
    _write_holds(session, holds, _wanted(made, memory, {row.id: row.task for row in live.values()}, pools))
    _raise_ranks(session, made.inherited)
    return made


_LIVE_RUNS = sa.select(RUN.c.id, RUN.c.task, RUN.c.state).where(LIVE)
_MAX_HOLD = sa.func.coalesce(ReactivePool.max_hold, sa.literal(MAX_HOLD, sa.Interval)).label("max_hold")
_POOLS = sa.select(ReactivePool.name, _MAX_HOLD, Queue.max_parallel).outerjoin(
    Queue, Queue.name == queue_of("") + ReactivePool.name
)


def _pools(session: Session) -> dict[str, PoolNow]:
    return {
        row.name: PoolNow(row.name, row.max_parallel, row.max_hold // _MICROSECOND) for row in session.execute(_POOLS)
    }


def _facts(memory: Memory, live: Mapping[str, Row[Any]], now: Instant) -> list[TaskNow]:
    """The tasks that have a run, those that wait for what these deliver, directly or not, and of each pool the least
    important one, against which a slot would be kept."""
    names, look = set(), [name for name in live if name in memory.tasks]
    while look:
        name = look.pop()
        if name in names:
            continue
        names.add(name)
        for parameter in memory.tasks[name].produces:
            look += [each for each in memory.index.watchers(parameter) if each not in names]
    facts = []
    for name in names:
        task, row = memory.tasks[name], live.get(name)
        facts.append(
            TaskNow(
                name,
                task.pool,
                task.priority,
                task.produces,
                frozenset() if memory.index.truth(name) else frozenset(memory.index.lacking(name)),
                task.free and (task.start_after is None or task.start_after <= now),
                None if row is None else LiveRun(row.id, row.state == RunState.RUNNING),
            )
        )
    least = {pool: min(priorities) for pool, priorities in memory.priorities.items() if priorities}
    return facts + [TaskNow(f" {pool}", pool, priority) for pool, priority in least.items()]


def _write_queues(session: Session, made: Plan) -> None:
    kept = {
        queue_of(pool): ([each.rank for each in slots], [to_datetime(each.until) for each in slots])
        for pool, slots in made.reservations.items()
    }
    stored = session.execute(
        sa.select(Queue.name, Queue.kept_ranks, Queue.kept_until).where(sa.func.cardinality(Queue.kept_ranks) > 0)
    )
    before = {row.name: (list(row.kept_ranks), list(row.kept_until)) for row in stored}
    for name in sorted(kept.keys() | before.keys()):
        wanted = kept.get(name, ([], []))
        if wanted != before.get(name, ([], [])):
            values = {"kept_ranks": wanted[0], "kept_until": wanted[1]}
            session.execute(sa.update(Queue).where(Queue.name == name).values(**values))


def _wanted(
    made: Plan, memory: Memory, producers: Mapping[int, str], pools: Mapping[str, PoolNow]
) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of all holds, spent ones too: these must not come again."""
    priorities = {(r.consumer, r.producer_run): r.priority for slots in made.reservations.values() for r in slots}
    rows = {}
    for hold in made.holds:
        key, task = (hold.consumer, hold.producer_run), memory.tasks[hold.consumer]
        until = hold.since + (pools[task.pool].max_hold if task.pool in pools else 0)
        rows[key] = {
            "task": hold.consumer,
            "run_id": hold.producer_run,
            "producer": producers[hold.producer_run],
            "pool": task.pool,
            "priority": priorities.get(key, task.priority),
            "since": to_datetime(hold.since),
            "until": to_datetime(until),
        }
    return rows


def _write_holds(
    session: Session, before: Mapping[tuple[str, int], Row[Any]], wanted: Mapping[tuple[str, int], dict[str, Any]]
) -> None:
    """Only what differs: this is done several times a second."""
    if gone := sorted(before.keys() - wanted.keys()):
        session.execute(sa.delete(HOLD).where(sa.tuple_(HOLD.c.task, HOLD.c.run_id).in_(gone)))
    new = [row for key, row in wanted.items() if key not in before or row != dict(before[key]._mapping)]
    if new:
        insert = postgresql.insert(HOLD).values(new)
        changed = {name: insert.excluded[name] for name in ("pool", "priority", "until")}
        session.execute(insert.on_conflict_do_update(index_elements=["task", "run_id"], set_=changed))


def _raise_ranks(session: Session, inherited: Mapping[int, int]) -> None:
    """The run that delivers is as urgent as whoever waits for it."""
    for run_id, priority in sorted(inherited.items()):
        lower = sa.and_(RUN.c.id == run_id, RUN.c.state == RunState.WAITING, RUN.c.rank > -priority)
        session.execute(sa.update(RUN).where(lower).values(rank=-priority))
