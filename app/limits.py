"""Limits of a queue, for the whole cluster, decided where work is claimed under the row lock of `queue`.

- `max_parallel` counts live claims: a batch that is worked through one by one is one call at a time.
- `rate` counts calls, tries again included. A claim gets what may be called within a second (`HORIZON`) and the moment
  of each call; the bucket may owe that much, so that over any time t no more than `burst + rate·t` calls begin.
- `paused`: nothing is claimed. All three change at run time, with the next claim.
- A queue *rests* where what its work needs does not answer: nothing is claimed for a moment, which doubles each time;
  then one row at a time is, as a trial, until one trial goes well. Whoever finds that out says so: `rest`, `awake`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP
from sqlalchemy.orm import Mapped, Session, mapped_column

from app.clock import Rate
from app.db import Model
from app.errors import BadRequest

HORIZON = 1.0
#: The first pause of a queue that rests, and the longest.
REST, REST_MOST = timedelta(seconds=0.5), timedelta(seconds=30)
_DOUBLINGS = 10
WHY_MOST = 500
UNCHANGED: Any = object()


class Queue(Model):
    __tablename__ = "queue"
    __table_args__ = (
        sa.CheckConstraint("max_parallel > 0", name="max_parallel_positive"),
        sa.CheckConstraint("rate > 0", name="rate_positive"),
        sa.CheckConstraint("burst >= 1", name="burst_at_least_one"),
        {"postgresql_with": {"fillfactor": 10}},
    )

    name: Mapped[str] = mapped_column(primary_key=True)
    paused: Mapped[bool] = mapped_column(server_default=sa.false())
    max_parallel: Mapped[int | None]
    #: Calls per second.
    rate: Mapped[float | None]
    burst: Mapped[float] = mapped_column(server_default=sa.text("1"))
    #: Below zero: calls that were handed out ahead, to be made within the horizon.
    tokens: Mapped[float] = mapped_column(server_default=sa.text("1"))
    refilled_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    #: Slots of `max_parallel` that are kept for work of these ranks, and until when.
    kept_ranks: Mapped[list[int]] = mapped_column(ARRAY(sa.SmallInteger), server_default=sa.text("'{}'"))
    kept_until: Mapped[list[datetime]] = mapped_column(ARRAY(TIMESTAMP(timezone=True)), server_default=sa.text("'{}'"))
    #: A circuit breaker: why nothing is claimed until when, and how often in a row; one claim at a time after that,
    #: until one of them goes well.
    rests_why: Mapped[str | None]
    rests_until: Mapped[datetime | None]
    rests: Mapped[int] = mapped_column(sa.SmallInteger, server_default=sa.text("0"))


@dataclass(frozen=True)
class Limits:
    """What the row of a queue says, at a moment of the database's clock."""

    paused: bool = False
    max_parallel: int | None = None
    rate: float | None = None
    burst: float = 1.0
    tokens: float = 1.0
    idle: float = 0.0
    #: The ranks for which a slot each is kept now.
    kept: Sequence[int] = ()
    #: Nothing is claimed before some moment that lies ahead.
    rests: bool = False
    #: It has rested: one row is claimed at a time, to see whether it can go on.
    trial: bool = False

    @property
    def limited(self) -> bool:
        return self.max_parallel is not None or self.rate is not None or self.rests or self.trial


@dataclass(frozen=True)
class Grant:
    """How many calls may be claimed, and in how many seconds from now each may begin."""

    pace: tuple[float, ...] = ()
    tokens: float = 0.0
    paced: bool = False

    @property
    def count(self) -> int:
        return len(self.pace)

    def spent(self, calls: int) -> float:
        return self.tokens - calls


def grant(limits: Limits, live: int, want: int) -> Grant:
    """Pure: what a claim of `want` rows may have while `live` claims run."""
    tokens = (
        limits.tokens if limits.rate is None else min(limits.burst, limits.tokens + max(0.0, limits.idle) * limits.rate)
    )
    if limits.paused or limits.rests or want <= 0 or (limits.max_parallel is not None and live >= limits.max_parallel):
        return Grant(tokens=tokens, paced=limits.rate is not None)
    want = 1 if limits.trial else want
    if limits.rate is None:
        return Grant(pace=(0.0,) * want)
    # The tolerance keeps 0.1 + 0.2 from costing a call.
    count = max(0, min(want, int(tokens + limits.rate * HORIZON + 1e-9)))
    pace = tuple(max(0.0, (call + 1 - tokens) / limits.rate) for call in range(count))
    return Grant(pace=pace, tokens=tokens, paced=True)


def kept_now() -> sa.Select[int]:
    """The ranks for which the queue of the outer statement keeps slots at this moment."""
    kept = (
        sa.func.unnest(Queue.kept_ranks, Queue.kept_until)
        .table_valued(sa.column("rank", sa.SmallInteger), sa.column("until", TIMESTAMP(timezone=True)))
        .render_derived(name="kept")
    )
    return sa.select(kept.c.rank).where(kept.c.until > sa.func.clock_timestamp()).correlate(Queue)


_RESTED = Queue.rests_why.is_not(None)


def resting(now: Any) -> sa.ColumnElement[bool]:
    """Never longer than a rest may last: the clock may have been set back since it began."""
    return sa.func.coalesce(sa.and_(Queue.rests_until > now, Queue.rests_until <= now + REST_MOST), sa.false())


_RESTS = resting(sa.func.clock_timestamp())
_LOCK = (
    sa.select(
        Queue.paused,
        sa.case((_RESTED, 1), else_=Queue.max_parallel).label("max_parallel"),
        Queue.rate,
        Queue.burst,
        Queue.tokens,
        sa.extract("epoch", sa.func.clock_timestamp() - Queue.refilled_at).cast(sa.Double).label("idle"),
        sa.func.array(kept_now().scalar_subquery(), type_=ARRAY(sa.SmallInteger)).label("kept"),
        sa.and_(_RESTED, _RESTS).label("rests"),
        sa.and_(_RESTED, ~_RESTS).label("trial"),
    )
    .where(Queue.name == sa.bindparam("queue"))
    .with_for_update()
)


def lock(session: Session, queue: str) -> Limits:
    """Takes the row lock; whoever claims from this queue waits for the end of this transaction."""
    row = session.execute(_LOCK, {"queue": queue}).one_or_none()
    return Limits() if row is None else Limits(**row._mapping)


def spend(session: Session, queue: str, granted: Grant, calls: int) -> None:
    if granted.paced:
        session.execute(
            sa.update(Queue)
            .where(Queue.name == queue)
            .values(tokens=granted.spent(calls), refilled_at=sa.func.clock_timestamp())
        )


def rest(session: Session, queue: str, why: str) -> timedelta:
    """Nothing is claimed from this queue for a while; how long. Several that say so at once count once."""
    now = sa.func.clock_timestamp()
    seconds = sa.func.least(
        REST.total_seconds() * sa.func.power(2, sa.func.least(Queue.rests, _DOUBLINGS)), REST_MOST.total_seconds()
    )
    longer = now + sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds)
    first = {"rests_why": why[:WHY_MOST], "rests_until": now + REST, "rests": 1}
    again = {
        "rests_why": why[:WHY_MOST],
        "rests_until": sa.case((_RESTS, Queue.rests_until), else_=longer),
        "rests": sa.case((_RESTS, Queue.rests), else_=sa.func.least(Queue.rests + 1, _DOUBLINGS)),
    }
    insert = postgresql.insert(Queue).values(name=queue, **first)
    rests = insert.on_conflict_do_update(index_elements=["name"], set_=again)
    left = sa.type_coerce(Queue.rests_until - now, sa.Interval)
    return max(timedelta(0), session.execute(rests.returning(left)).scalar_one())


def awake(session: Session, queue: str) -> None:
    """A trial went well: everything is claimed again."""
    rested = sa.update(Queue).where(Queue.name == queue, _RESTED)
    session.execute(rested.values(rests_why=None, rests_until=None, rests=0))


def moved(said: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """For `configure`, of what the code says: only what it says otherwise than before. The rest may have been set by an
    operator."""
    words = {"max_parallel": "max_parallel", "rate_limit": "rate"}
    return {name: said[word] for word, name in words.items() if said[word] != (before or {}).get(word)}


def configure(
    session: Session,
    queue: str,
    *,
    paused: bool = UNCHANGED,
    max_parallel: int | None = UNCHANGED,
    rate: str | None = UNCHANGED,
    burst: float | None = UNCHANGED,
) -> None:
    """Sets limits of a queue from now on; what is left out stays. `rate` is text such as `100/s` or `6/min`."""
    if not queue.strip():
        raise BadRequest("a queue has a name: '' is none")
    values: dict[str, Any] = {}
    if paused is not UNCHANGED:
        values["paused"] = paused
        if not paused:
            # Whoever opens a queue that rests wants to see it tried now.
            values["rests_until"] = None
    if max_parallel is not UNCHANGED:
        if max_parallel is not None and not 0 < max_parallel <= 2**31 - 1:
            raise BadRequest(f"max_parallel={max_parallel} must be 1 or more, or None for no limit")
        values["max_parallel"] = max_parallel
    if rate is not UNCHANGED:
        try:
            values["rate"] = None if rate is None else Rate.parse(rate).per_second
        except ValueError as error:
            raise BadRequest(str(error)) from None
        # A new rate begins with one call, not with what the old one had saved up or owed.
        values |= {"tokens": 1.0, "refilled_at": sa.func.clock_timestamp()}
    if burst is not UNCHANGED:
        if burst is not None and not 1 <= burst <= 1e9:
            raise BadRequest(f"burst={burst} must be 1 or more, and at most a thousand million")
        values["burst"] = burst or 1.0
    insert = postgresql.insert(Queue).values(name=queue, **values)
    if values:
        session.execute(insert.on_conflict_do_update(index_elements=["name"], set_=values))
    else:
        session.execute(insert.on_conflict_do_nothing())
