"""Dispatch: rings for whatever waits and is ready, within free capacity. What the producers' rings lost is found here.

A pass reads one index entry for each queue and rank that has waiting rows, counts the ready ones up to what could be
rung for, asks the broker how many tickets lie there already, and sends what is missing: never more than twice the slots
of live workers, counted per queue.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from app import workers
from app.arrays import Array
from app.checks import limited
from app.claims import Lane, distinct_prefix
from app.claims.model import built_once, is_running, table_of
from app.db import transaction
from app.doorbell import GENERIC, Bell, Publisher
from app.limits import Queue, kept_now, resting
from app.registry import Waiting, registry
from app.shares import Shards

#: Ready rows that one ticket is rung for.
ROWS_A_TICKET = 50
UNLIMITED = 1_000_000


@dataclass(frozen=True)
class Report:
    """`waiting`: rows that are ready in queues that are not paused, whether or not their limits allow a call now."""

    queues: int = 0
    waiting: int = 0
    rung: int = 0
    broker_away: bool = False


@dataclass(frozen=True)
class Ready:
    queue: str
    lane: Lane
    rows: int
    #: How many more claims the limits of the queue allow now.
    free: int
    paused: bool = False

    @property
    def tickets(self) -> str:
        """The queue that tickets for it go to."""
        return self.queue if self.lane is Lane.MAIN else f"{self.queue}.{self.lane}"


class Part(enum.Enum):
    """Of the tables: schedulers share out those that have shards."""

    ALL = "all"
    WHOLE = "whole"
    SHARDED = "sharded"

    def holds(self, table: Waiting) -> bool:
        return self is Part.ALL or ("shard" in table.model.INCLUDED) is (self is Part.SHARDED)


@limited
def run_once(
    limit: int = 1000,
    *,
    queues: Iterable[str] | None = None,
    publisher: Publisher | None = None,
    part: Part = Part.ALL,
    shards: Shards | None = None,
) -> Report:
    """One pass over at most `limit` queues, or those named; in `part` of the tables, and of `shards` only."""
    only = None if queues is None else set(queues)
    tables = [table for table in registry.waiting if part.holds(table)]
    with transaction() as session:
        slots = workers.slots(session)
        ready = [each for table in tables for each in find_ready(session, table, limit, only, shards)]
    ready = [each for each in ready if (only is None or each.tickets in only) and not each.paused][:limit]
    waiting = sum(each.rows for each in ready)
    if not any(each.free > 0 for each in ready):
        return Report(len(ready), waiting)
    own = publisher is None
    publisher = publisher or Publisher()
    try:
        busy = {each.queue for each in ready if each.lane is Lane.MAIN}
        bells = [bell for each in ready if each.free > 0 for bell in _wanted(each, slots, publisher, busy, shards)]
        publisher.publish(bells)
    except publisher.errors:
        publisher.close()
        return Report(len(ready), waiting, broker_away=True)
    finally:
        if own:
            publisher.close()
    return Report(len(ready), waiting, len(bells))


def _wanted(
    ready: Ready, slots: dict[str, int], publisher: Publisher, busy: set[str], shards: Shards | None
) -> list[Bell]:
    # Also where no worker has reported: its heartbeat may be what fails.
    room = 2 * max(1, slots.get(ready.tickets, 0)) - publisher.length(ready.tickets)
    wanted = -(-ready.rows // ROWS_A_TICKET)
    if ready.lane is Lane.LOW:
        # Half of the slots at most, so that the main lane finds one free; and none to speak of while that is busy.
        room = min(room, 1 if ready.queue in busy else max(1, slots.get(ready.tickets, 0) // 2))
    return [Bell(ready.tickets, GENERIC, ready.lane, shards)] * max(0, min(room, wanted, ready.free))


def find_ready(
    session: Any, table: Waiting, limit: int = 1000, only: set[str] | None = None, shards: Shards | None = None
) -> list[Ready]:
    """The queues with ready rows, and how many rows, up to what 100 tickets serve."""
    found: dict[tuple[str, Lane], Ready] = {}
    within = shards if "shard" in table.model.INCLUDED else None
    for lane in table.lanes:
        statement = _ready(table.model, lane, within is not None)
        for queue, rows, free, paused in session.execute(statement, _parameters(limit, only, within)):
            before = found.get((queue, lane))
            if before is not None:
                # Slots that are kept for better ranks are free to these.
                rows, free = rows + before.rows, max(free, before.free)
            found[(queue, lane)] = Ready(queue, lane, rows, free, bool(paused))
    return list(found.values())


def _parameters(limit: int, only: set[str] | None, shards: Shards | None) -> dict[str, Any]:
    names = None if only is None else sorted({name.removesuffix(f".{Lane.LOW}") for name in only} | only)
    within = {} if shards is None else {"p_shard": shards[0], "p_last_shard": shards[1]}
    return {"most": limit, "only": names, **within}


@built_once
def _ready(model: Any, lane: Lane, sharded: bool = False) -> Any:  # noqa: FBT001
    table, ready = table_of(model), model.ready(lane)
    waits = model.waits_in(lane)
    groups = distinct_prefix(model, waits, *((model.rank,) if model.RANKED else ()))
    first = (
        sa.select(sa.literal(1))
        .where(table.c.queue == groups.c.queue, waits, ready <= sa.func.now())
        .order_by(ready)
        .limit(ROWS_A_TICKET * 100)
    )
    if model.RANKED:
        first = first.where(table.c.rank == groups.c.rank)
    if sharded:
        first = first.where(table.c.shard.between(sa.bindparam("p_shard"), sa.bindparam("p_last_shard")))
    # A subquery of a lateral one refers to `groups` too: correlate, or the table would be joined in again.
    counted = (
        sa.select(sa.func.count().label("rows")).select_from(first.correlate(groups).subquery()).lateral("counted")
    )
    tokens = Queue.tokens + sa.extract("epoch", sa.func.clock_timestamp() - Queue.refilled_at) * Queue.rate
    live = sa.select(sa.func.count(sa.distinct(table.c.pass_key))).where(table.c.queue == Queue.name, is_running(model))
    has_token = sa.func.least(Queue.burst, tokens) + Queue.rate >= 1
    free = sa.case(
        (Queue.paused, 0),
        (resting(sa.func.now()), 0),
        (~has_token, 0),
        (Queue.rests_why.is_not(None), 1 - live.scalar_subquery()),
        (Queue.max_parallel.is_not(None), Queue.max_parallel - live.scalar_subquery() - _kept(model, groups)),
        else_=UNLIMITED,
    )
    only = sa.bindparam("only", type_=Array(sa.Text))
    return (
        sa.select(groups.c.queue, counted.c.rows, free, Queue.paused)
        .select_from(groups.join(counted, sa.true()).outerjoin(Queue, Queue.name == groups.c.queue))
        .where(counted.c.rows > 0, sa.or_(only.is_(None), groups.c.queue == sa.any_(only)))
        # Where there are more than one pass takes, none of them is left out for ever.
        .order_by(sa.func.random())
        .limit(sa.bindparam("most", type_=sa.Integer, literal_execute=True))
    )


def _kept(model: Any, groups: Any) -> Any:
    """The slots that are kept for better ranks than this."""
    if not model.RANKED:
        return 0
    better = kept_now().correlate(Queue, groups).subquery("better")
    return sa.select(sa.func.count()).select_from(better).where(better.c.rank < groups.c.rank).scalar_subquery()
