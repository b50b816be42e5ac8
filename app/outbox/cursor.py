"""How far events are published: the one row of `event_relay`, and every way in which it moves.

Promises:
- New is what was not visible in the stored snapshot and is visible now: no order of commits hides an event.
- Whoever moves the row names the `term` that was read. Who finds another one has lost, and knows nothing any more.
- No move is made before what it says is true: that the broker has confirmed those events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.orm import Session

from app.db import autocommit, transaction
from app.outbox.model import Event, EventRelay, EventSubscription
from app.settings import settings
from app.stream import FIRST_XID, Snapshot, TransactionId, ahead, cluster, end, new_in

#: Nothing was visible in it.
NOTHING = f"{FIRST_XID}:{FIRST_XID}:"


@dataclass(frozen=True)
class State:
    """The row as it was read. `new`: something is visible that was not; `subscriptions`: by name, the patterns, those
    before, and since when there is one of this name."""

    snapshot: str
    target: str | None
    done_id: int
    last_id: int | None
    replay_from: int | None
    replay_to: int | None
    term: int
    published: int
    failed: bool
    usable: bool
    new: bool
    #: Of the same moment as all that was read.
    now: str
    subscriptions: dict[str, tuple[list[str], list[str], str]]

    @property
    def pending(self) -> bool:
        return self.new or self.target is not None or self.replay_from is not None


def poll() -> State | None:
    """Without locks, and without writing anything."""
    with autocommit() as connection:
        row = connection.execute(_polling()).one_or_none()
    return None if row is None else State(*row)


@cache
def _polling() -> Any:
    # As a scalar subquery, which is evaluated once: an index range wants a value to compare with.
    before = sa.select(EventRelay.snapshot).scalar_subquery()
    # Not by EXISTS, which the planner may answer by reading the table until it meets one: here that is to its end.
    first = [
        each.order_by(Event.xid).limit(sa.literal_column("1")).scalar_subquery()
        for each in new_in(before, Event, Event.xid)
    ]
    patterns = sa.func.json_build_array(
        EventSubscription.patterns, EventSubscription.former, EventSubscription.created_at
    )
    named = sa.func.json_object_agg(EventSubscription.name, patterns, type_=JSON)
    subscriptions = sa.select(named).select_from(EventSubscription).scalar_subquery()
    return sa.select(
        sa.cast(EventRelay.snapshot, sa.Text),
        sa.cast(EventRelay.target, sa.Text),
        *(EventRelay.done_id, EventRelay.last_id, EventRelay.replay_from, EventRelay.replay_to),
        *(EventRelay.term, EventRelay.published),
        EventRelay.error.is_not(None),
        sa.and_(EventRelay.cluster == cluster(), ~ahead(EventRelay.snapshot)),
        sa.or_(*(each.is_not(None) for each in first)),
        sa.cast(sa.func.pg_current_snapshot(), sa.Text),
        sa.func.coalesce(subscriptions, sa.cast(sa.literal({}, JSON), JSON)),
    )


def begin(state: State | None) -> bool:
    """The first time, with all there is. Or anew, where the stored snapshot speaks of transactions that this cluster
    has not had (a restored dump): what may never have been published is published, some of it once more. True: that
    was found, and is worth a word."""
    with transaction() as session:
        unseen = sa.or_(~visible(EventRelay.snapshot), Event.id > EventRelay.done_id)
        first = session.execute(sa.select(sa.func.min(Event.id)).join(EventRelay, unseen)).scalar_one()
        # Rows of another cluster may have numbers that this one has not come to: they would be visible in no snapshot.
        to_come = Event.xid >= end(sa.func.pg_current_snapshot())
        session.execute(sa.update(Event).where(to_come).values(xid=sa.cast(FIRST_XID, TransactionId)))
        if state is None:
            values = {"id": 1, "snapshot": at(NOTHING), "cluster": cluster()}
            session.execute(postgresql.insert(EventRelay).values(values).on_conflict_do_nothing())
            return False
        again = sa.func.least(EventRelay.replay_from, sa.cast(first, sa.BigInteger))
        moved = {"snapshot": sa.func.pg_current_snapshot(), "target": None, "last_id": None, "cluster": cluster()}
        return _move(session, state, **moved, **_replay(again))


def visible(snapshot: Any) -> sa.ColumnElement[bool]:
    return sa.func.pg_visible_in_snapshot(Event.xid, snapshot, type_=sa.Boolean)


def as_snapshot(name: str) -> Any:
    return sa.cast(sa.bindparam(name, type_=sa.Text), Snapshot)


def at(snapshot: str) -> Any:
    return sa.cast(snapshot, Snapshot)


def aim(state: State) -> bool:
    """Much is new: it is to be published in the order of ids, from the first to the last of what is visible now."""
    new = sa.union_all(*new_in(as_snapshot("p_snapshot"), Event, Event.id)).subquery("new")
    values = {
        "target": sa.func.pg_current_snapshot(),
        "done_id": sa.select(sa.func.min(new.c.id) - 1).scalar_subquery(),
        "last_id": sa.select(sa.func.max(new.c.id)).scalar_subquery(),
    }
    with transaction() as session:
        return _move(session, state, {"p_snapshot": state.snapshot}, **values)


def published(state: State, ids: Sequence[int], **values: Any) -> bool:
    """The broker has these; `values` say how far that is."""
    if ids:
        values |= {"published": EventRelay.published + len(ids), **_lately(min(ids))}
    with transaction() as session:
        return _move(session, state, error=None, failed_at=None, **values)


def passed_over(state: State) -> bool:
    """All that was visible when the state was read would have gone to nobody."""
    known = visible(as_snapshot("p_now"))
    columns = [each.where(known) for each in new_in(as_snapshot("p_snapshot"), Event, Event.id)]
    new = sa.union_all(*columns).subquery("new")
    last = sa.select(sa.func.max(new.c.id)).scalar_subquery()
    values = {"snapshot": at(state.now), "done_id": sa.func.greatest(EventRelay.done_id, last)}
    parameters = {"p_snapshot": state.snapshot, "p_now": state.now}
    with transaction() as session:
        return _move(session, state, parameters, target=None, last_id=None, error=None, failed_at=None, **values)


def through(state: State) -> dict[str, Any]:
    """All that was visible in the target is published."""
    return {"snapshot": at(str(state.target)), "target": None, "last_id": None}


def wiped(state: State) -> bool:
    """The broker has lost what it had: what was published lately is published again, before anything new."""
    span = settings().events_replay
    recent = sa.case(
        (_since_lately() > 2 * span, None),
        (_since_lately() > span, EventRelay.lately_id),
        else_=sa.func.least(EventRelay.lately_id, EventRelay.earlier_id),
    )
    with transaction() as session:
        return _move(session, state, **_replay(sa.func.least(EventRelay.replay_from, recent)))


def replay(session: Session, first_id: int) -> bool:
    """From this id on; False where nothing was published yet."""
    values = _replay(sa.func.least(EventRelay.replay_from, first_id))
    moved = sa.update(EventRelay).values(term=EventRelay.term + 1, **values).returning(EventRelay.id)
    return session.execute(moved).one_or_none() is not None


def failed(error: str) -> None:
    """Says why nothing moves; also while nobody else may write the row's other columns."""
    told = {"error": error, "failed_at": sa.func.coalesce(EventRelay.failed_at, sa.func.clock_timestamp())}
    with autocommit() as connection:
        connection.execute(sa.update(EventRelay).where(EventRelay.error.is_distinct_from(error)).values(**told))


def well() -> None:
    """The broker answers again, and nothing was to be published."""
    with autocommit() as connection:
        connection.execute(sa.update(EventRelay).values(error=None, failed_at=None))


def _replay(first: sa.ColumnElement[Any]) -> dict[str, Any]:
    last = sa.select(sa.func.max(Event.id)).scalar_subquery()
    return {"replay_from": first, "replay_to": sa.case((first.is_(None), None), else_=last)}


def _lately(first: int) -> dict[str, Any]:
    """Two spans, of which the younger one grows: together they hold at least the last `events_replay`."""
    span = settings().events_replay
    over, long_over = _since_lately() > span, _since_lately() > 2 * span
    return {
        "lately_at": sa.case((over, sa.func.clock_timestamp()), else_=EventRelay.lately_at),
        "lately_id": sa.case((over, first), else_=sa.func.least(EventRelay.lately_id, first)),
        "earlier_id": sa.case((long_over, None), (over, EventRelay.lately_id), else_=EventRelay.earlier_id),
    }


def _since_lately() -> sa.ColumnElement[timedelta]:
    return sa.type_coerce(sa.func.clock_timestamp() - EventRelay.lately_at, sa.Interval)


def _move(session: Session, state: State, parameters: dict[str, Any] | None = None, **values: Any) -> bool:
    update = sa.update(EventRelay).where(EventRelay.term == sa.bindparam("p_term", state.term))
    moved = update.values(term=EventRelay.term + 1, moved_at=sa.func.clock_timestamp(), **values)
    return session.execute(moved.returning(EventRelay.id), parameters or {}).one_or_none() is not None
