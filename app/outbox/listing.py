"""What is to be published and what was, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.outbox.cursor import visible
from app.outbox.model import EVENT, Event, EventRelay, EventSubscription
from app.stream import new_in

#: More than these are not counted one by one.
COUNTED = 10_000


@dataclass(frozen=True)
class Lag:
    """`waiting`: events that are not published, up to `COUNTED`; `oldest`: since when the first of them waits."""

    waiting: int
    oldest: timedelta | None
    #: Of those that are published once more.
    replaying: int
    #: Without what nobody would have got, which is passed over.
    published: int
    error: str | None
    failed_for: timedelta | None
    moved_at: datetime | None
    subscriptions: int
    #: Whether a relay has ever run here.
    started: bool = True


@dataclass(frozen=True)
class Listed:
    """An event; `relayed`: whether the broker has had it, or it was passed over, as nobody would have got it."""

    sequence: int
    kind: str
    id: str
    stage: str
    version: int
    fields: list[str]
    state_version: int
    saved_at: datetime
    relayed: bool


@dataclass(frozen=True)
class Subscription:
    name: str
    patterns: list[str]
    created_at: datetime


def lag(session: Session) -> Lag:
    relay = EventRelay.__table__.c
    count = session.execute(sa.select(sa.func.count()).select_from(EventSubscription)).scalar_one()
    row = session.execute(
        sa.select(
            *(relay.replay_from, relay.replay_to, relay.published, relay.error, relay.moved_at),
            (sa.func.clock_timestamp() - relay.failed_at).label("failed_for"),
        )
    ).one_or_none()
    waiting, oldest = session.execute(_waiting() if row is not None else _all()).one()
    if row is None:
        return Lag(waiting, oldest, 0, 0, None, None, None, count, started=False)
    again = 0 if row.replay_from is None else max(0, row.replay_to - row.replay_from + 1)
    return Lag(waiting, oldest, again, row.published, row.error, row.failed_for, row.moved_at, count)


def _waiting() -> Any:
    """Two ranges of the index by transaction; of a target that is half done, the rest."""
    before = sa.select(EventRelay.snapshot).scalar_subquery()
    target = sa.select(EventRelay.target).scalar_subquery()
    done = sa.select(EventRelay.done_id).scalar_subquery()
    is_done = sa.func.coalesce(sa.and_(Event.id <= done, visible(target)), sa.false())
    new = [each.where(~is_done) for each in new_in(before, Event, Event.saved_at)]
    return _counted(sa.union_all(*new))


def _all() -> Any:
    return _counted(sa.select(Event.saved_at))


def _counted(moments: Any) -> Any:
    first = moments.limit(sa.literal_column(str(COUNTED))).subquery("waiting")
    age = sa.func.clock_timestamp() - sa.func.min(first.c.saved_at)
    return sa.select(sa.func.count(), age).select_from(first)


def recent(
    session: Session,
    *,
    kind: str | None = None,
    stage: str | None = None,
    entity_id: str | None = None,
    since_id: int | None = None,
    limit: int = 50,
) -> Sequence[Listed]:
    """The newest first."""
    relay = EventRelay.__table__.c
    of_target = sa.and_(Event.id <= relay.done_id, visible(relay.target))
    relayed = sa.func.coalesce(sa.or_(visible(relay.snapshot), of_target), sa.false())
    query = (
        sa.select(
            *(Event.id, Event.kind, Event.entity_id, Event.stage, Event.version, Event.fields),
            *(Event.state_version, Event.saved_at, relayed),
        )
        .select_from(EVENT.outerjoin(EventRelay.__table__, sa.true()))
        .order_by(Event.id.desc())
        .limit(limit)
    )
    wanted = ((Event.kind, kind), (Event.stage, stage), (Event.entity_id, entity_id))
    query = query.where(*(column == value for column, value in wanted if value is not None))
    if since_id is not None:
        query = query.where(Event.id >= since_id)
    return [Listed(*row) for row in session.execute(query)]


def subscriptions(session: Session) -> Sequence[Subscription]:
    rows = session.scalars(sa.select(EventSubscription).order_by(EventSubscription.name))
    return [Subscription(row.name, row.patterns, row.created_at) for row in rows]
