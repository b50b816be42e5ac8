"""Dispatch: rings for whatever waits and is ready, within free capacity. What the producers' rings lost is found here.

A pass reads one index entry for each queue and rank that has waiting rows, counts the ready ones up to what could be
rung for, asks the broker how many tickets lie there already, and sends what is missing: never more than twice the slots
of live workers, counted per queue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from app import workers
from app.claims import Lane, distinct_prefix
from app.claims.model import built_once, is_running, is_waiting, table_of
from app.db import transaction
from app.doorbell import GENERIC, Bell, Publisher
from app.limits import Queue, kept_now
from app.registry import Waiting, registry

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


def run_once(limit: int = 1000, *, queues: Iterable[str] | None = None, publisher: Publisher | None = None) -> Report:
    """One pass over at most `limit` queues, or those named."""
    only = None if queues is None else set(queues)
    with transaction() as session:
        slots = workers.slots(session)
        ready = [each for table in registry.waiting for each in find_ready(session, table, limit, only)]
    ready = [each for each in ready if (only is None or each.queue in only) and not each.paused][:limit]
    waiting = sum(each.rows for each in ready)
    if not any(each.free > 0 for each in ready):
        return Report(len(ready), waiting)
    own = publisher is None
    publisher = publisher or Publisher()
    try:
        bells = [bell for each in ready if each.free > 0 for bell in _wanted(each, slots, publisher)]
        publisher.publish(bells)
    except publisher.errors:
        publisher.close()
        return Report(len(ready), waiting, broker_away=True)
    finally:
        if own:
            publisher.close()
    return Report(len(ready), waiting, len(bells))


def _wanted(ready: Ready, slots: dict[str, int], publisher: Publisher) -> list[Bell]:
    # Also where no worker has reported: its heartbeat may be what fails.
    room = 2 * max(1, slots.get(ready.queue, 0)) - publisher.length(ready.queue)
    wanted = -(-ready.rows // ROWS_A_TICKET)
    return [Bell(ready.queue, GENERIC, ready.lane)] * max(0, min(room, wanted, ready.free))


def find_ready(session: Any, table: Waiting, limit: int = 1000, only: set[str] | None = None) -> list[Ready]:
    """The queues with ready rows, and how many rows, up to what 100 tickets serve."""
    found: dict[tuple[str, Lane], Ready] = {}
    for lane in table.lanes:
        for queue, rows, free, paused in session.execute(_ready(table.model, lane), _parameters(limit, only)):
            before = found.get((queue, lane))
            if before is not None:
                # Slots that are kept for better ranks are free to these.
                rows, free = rows + before.rows, max(free, before.free)
            found[(queue, lane)] = Ready(queue, lane, rows, free, bool(paused))
    return list(found.values())


def _parameters(limit: int, only: set[str] | None) -> dict[str, Any]:
    return {"most": limit, "only": None if only is None else sorted(only)}


@built_once
def _ready(model: Any, lane: Lane) -> Any:
    table, ready = table_of(model), model.ready(lane)
    groups = distinct_prefix(model, is_waiting(model), *((model.rank,) if model.RANKED else ()))
    first = (
        sa.select(sa.literal(1))
        .where(table.c.queue == groups.c.queue, is_waiting(model), ready <= sa.func.now())
        .order_by(ready)
        .limit(ROWS_A_TICKET * 100)
    )
    if model.RANKED:
        first = first.where(table.c.rank == groups.c.rank)
    # A subquery of a lateral one refers to `groups` too: correlate, or the table would be joined in again.
    counted = (
        sa.select(sa.func.count().label("rows")).select_from(first.correlate(groups).subquery()).lateral("counted")
    )
    tokens = Queue.tokens + sa.extract("epoch", sa.func.clock_timestamp() - Queue.refilled_at) * Queue.rate
    live = sa.select(sa.func.count(sa.distinct(table.c.pass_key))).where(table.c.queue == Queue.name, is_running(model))
    has_token = sa.func.least(Queue.burst, tokens) + Queue.rate >= 1
    free = sa.case(
        (Queue.paused, 0),
        (~has_token, 0),
        (Queue.max_parallel.is_not(None), Queue.max_parallel - live.scalar_subquery() - _kept(model, groups)),
        else_=UNLIMITED,
    )
    only = sa.bindparam("only", type_=ARRAY(sa.Text))
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
