"""Events are kept for `TIDEMILL_EVENT_RETENTION`, and at least until they are published."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from app.checks import limited
from app.db import transaction
from app.outbox.model import Event, EventRelay
from app.settings import settings
from app.stream import TransactionId

LIMIT = 10_000


@dataclass(frozen=True)
class Report:
    events: int = 0
    more: bool = False


@limited
def run_once(limit: int = LIMIT) -> Report:
    """Removes those of the `limit` lowest ids that are over age: the rest is younger, but for what is written at
    once. Nothing that is still to be published, or to be published again."""
    relay = EventRelay.__table__
    snapshot = sa.select(relay.c.snapshot).scalar_subquery()
    again = sa.select(relay.c.replay_from).scalar_subquery()
    lowest = (
        sa.select(Event.id, Event.saved_at, Event.xid)
        .order_by(Event.id)
        .limit(sa.literal_column(str(limit)))
        .subquery("lowest")
    )
    old = sa.select(lowest.c.id).where(
        lowest.c.saved_at < sa.func.now() - settings().event_retention,
        lowest.c.xid < sa.func.pg_snapshot_xmin(snapshot, type_=TransactionId),
        lowest.c.id < sa.func.coalesce(again, sa.literal(2**62)),
    )
    with transaction() as session:
        ids = old.cte("old")
        removed = session.execute(
            sa.delete(Event).where(Event.id.in_(sa.select(ids.c.id))).returning(sa.literal(1))
        ).all()
    return Report(len(removed), more=len(removed) == limit)
