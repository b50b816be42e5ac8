"""What holds of queues and their limits, and of the relay of events."""

from __future__ import annotations

from typing import cast

import sqlalchemy as sa

from app.claims.storm import RepairPace
from app.limits import HORIZON, Queue
from app.outbox.model import EventRelay
from recovery.findings import Verdict
from recovery.invariants.entry import EVENT, QUEUE, Invariant, selecting
from recovery.invariants.setting import removing, setting

_QUEUE, _PACE = cast(sa.Table, Queue.__table__), cast(sa.Table, RepairPace.__table__)
_ahead = sa.func.now() + sa.text("interval '1 minute'")
_stuck = sa.and_(
    _QUEUE.c.rate.is_not(None),
    sa.or_(
        _QUEUE.c.refilled_at > _ahead,
        _QUEUE.c.tokens == sa.literal_column("'NaN'::float8"),
        _QUEUE.c.tokens < -(_QUEUE.c.rate * HORIZON + 1),
    ),
)
_far = _PACE.c.until > sa.func.now() + sa.text("interval '1 day'")

OF_QUEUES: tuple[Invariant, ...] = (
    Invariant(
        "the rate of a queue is counted from a moment that was",
        QUEUE,
        Verdict.REPAIRABLE,
        "queue_rate_stuck",
        selecting(sa.select(_QUEUE.c.name).where(_stuck)),
        "counted from now, beginning with one call",
        setting(_QUEUE, _stuck, {"tokens": 1.0, "refilled_at": sa.func.now()}, "counted from now"),
    ),
    Invariant(
        "what is repaired in a queue comes within a day",
        QUEUE,
        Verdict.REPAIRABLE,
        "queue_repairs_far",
        selecting(sa.select(_PACE.c.queue).where(_far)),
        "planned anew",
        removing(_PACE, _far, "planned anew"),
    ),
    Invariant(
        "a queue does not rest",
        QUEUE,
        Verdict.DIAGNOSIS,
        "queue_rests",
        selecting(sa.select(_QUEUE.c.name).where(_QUEUE.c.rests_why.is_not(None))),
        "what its work needs answers again; tidemill queue resume tries at once",
    ),
    Invariant(
        "events are published",
        EVENT,
        Verdict.DIAGNOSIS,
        "events_stand",
        selecting(sa.select(EventRelay.id).where(EventRelay.error.is_not(None))),
        "the broker takes them again; the relay goes on by itself",
    ),
)
