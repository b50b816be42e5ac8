"""Publishing again what was published before, from a moment on; and beginning anew after a restore."""

from __future__ import annotations

from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import SCHEMA, joined
from app.errors import BadRequest, NotFound
from app.outbox import cursor
from app.outbox.model import Event, EventRelay

#: Ids and times are drawn one after the other, by many at once.
SLACK = timedelta(minutes=1)


def replay(since: datetime, session: Session | None = None) -> int:
    """Publishes again all events from this moment on, before anything new. Whoever dedups by the sequence sees none of
    them twice, so this is for subscribers that have lost what they had. Returns the first id."""
    if since.tzinfo is None:
        raise BadRequest(f"since={since.isoformat()} has no time zone: give it one, such as UTC")
    with joined(session) as tx:
        first = first_since(tx, since)
        if first is None:
            raise NotFound(f"there is no event since {since.isoformat()}: nothing can be published again")
        if not cursor.replay(tx, first):
            raise NotFound("nothing was published yet: the relay has never run, see 'tidemill events status'")
        return first


def restored(session: Session) -> int:
    """After a restore from a backup, the next saves would get sequences that later ones had which are lost, and that
    subscribers pass over. From now on they are higher than any that was ever given: microseconds of the clock, which no
    system saves as fast as. Returns the first of them."""
    sequence = sa.func.pg_get_serial_sequence(f"{SCHEMA}.{Event.__tablename__}", Event.id.name)
    moment = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()) * 1_000_000, sa.BigInteger)
    beyond = sa.func.greatest(sa.func.nextval(sequence), moment)
    return int(session.execute(sa.select(sa.func.setval(sequence, beyond) + 1)).scalar_one())


def preview(session: Session, since: datetime) -> int:
    """About how many events that is: those that are kept, whether or not they were published."""
    first = first_since(session, since)
    if first is None:
        return 0
    return session.execute(sa.select(sa.func.count()).select_from(Event).where(Event.id >= first)).scalar_one()


def started(session: Session) -> bool:
    return session.execute(sa.select(EventRelay.id)).one_or_none() is not None


def first_since(session: Session, since: datetime) -> int | None:
    """Found by halving, as there is no index by time: the sequence goes with it, but for what is written at once."""
    since -= SLACK
    low, high = session.execute(
        sa.select(
            sa.select(sa.func.min(Event.id)).scalar_subquery(), sa.select(sa.func.max(Event.id)).scalar_subquery()
        )
    ).one()
    if low is None:
        return None
    found = None
    while low <= high:
        middle = (low + high) // 2
        row = session.execute(
            sa.select(Event.id, Event.saved_at >= since)
            .where(Event.id >= middle, Event.id <= high)
            .order_by(Event.id)
            .limit(sa.literal_column("1"))
        ).one_or_none()
        if row is None:
            high = middle - 1
        elif row[1]:
            found, high = row[0], middle - 1
        else:
            low = row[0] + 1
    return found
