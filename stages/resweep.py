"""Walks over all entities of a kind, which ask stages whether they want them (S16): started, steered, looked at.

- What is wanted goes into the low lane. An entity that has a timer in the main lane keeps it there.
- `rate` is that of the whole walk, whatever number of workers walks, and lasts over their restarts.
- Pausing, resuming, cancelling and another rate take effect with the next page.
- What is new since the start may be left out: the system stage asks about it anyway.

How a worker walks is in `stages.walking`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app import audit
from app.checks import checked_speed
from app.db import joined
from app.doorbell import GENERIC
from app.errors import BadRequest, NotFound
from app.jobs.enqueue import ring_after_commit
from stages.definition import RESWEEP, SYSTEM, queue_of
from stages.kind import Kind
from stages.model import PART, PartState, Resweep, ResweepState, Sharding
from stages.queue import definition_of
from stages.registration import of_kind
from stages.watched import Watched, kind_of, kinds

#: The most entities that are read at once.
PAGE = 300
PARTS_MOST = 4096
LISTED_MOST = 10_000
LIVE = (ResweepState.RUNNING, ResweepState.PAUSED)
UNCHANGED: Any = object()


@dataclass(frozen=True)
class Progress:
    id: int
    kind: str
    #: That is asked; None: all are.
    stage: str | None
    state: ResweepState
    #: Entities a second that it may ask about; None: as many as it can.
    rate: float | None
    #: About how many entities there were when it began.
    total: int
    #: How many were asked about, and how often the answer was not "no".
    asked: int
    wanted: int
    #: How many could not be read, and were passed over.
    failed: int
    parts: int
    parts_done: int
    #: The last error of any part.
    error: str | None
    requested_by: str | None
    started_at: datetime
    ended_at: datetime | None
    #: Entities a second since it was started, resumed or given another rate; None: nothing was measured.
    rate_so_far: float | None

    @property
    def percent(self) -> float:
        """100 only when it is done: the total is an estimate."""
        if self.state == ResweepState.DONE:
            return 100.0
        return min(99.9, 100.0 * self.asked / max(1, self.total))

    @property
    def left(self) -> timedelta | None:
        """None: nobody knows, as where there are more entities than was thought; or it does not go on."""
        rate = self.rate_so_far or self.rate
        if self.state != ResweepState.RUNNING or not rate or self.asked >= self.total:
            return None
        return timedelta(seconds=min((self.total - self.asked) / rate, timedelta.max.total_seconds() / 2))


def start(
    what: Any,
    *,
    rate: str | None = None,
    parts: int | None = None,
    reason: str | None = None,
    session: Session | None = None,
) -> int:
    """Begins a walk; its id. `what`: a stage (its class, or `"kind.stage"`), which alone is asked; or a kind (the
    watched class, or its name), of which all are. `rate`: entities asked about, such as `100/s`. `parts` can be walked
    at the same time; unless given, as many as there are shards."""
    kind, stage = _asked(what)
    speed = checked_speed(rate)
    if parts is not None and (type(parts) is not int or not 1 <= parts <= PARTS_MOST):
        raise BadRequest(f"parts={parts!r:.100} must be a whole number from 1 to {PARTS_MOST}")
    with joined(session) as tx:
        total = kind.store.count(tx)
        cuts = kind.store.split(tx, parts or tx.execute(sa.select(Sharding.shards)).scalar_one())
        values = {"kind": kind.name, "stage": stage, "rate": speed, "total": total, "requested_by": audit.actor()}
        insert = postgresql.insert(Resweep).values(**values)
        ours = insert.on_conflict_do_nothing(index_elements=["kind", "stage"], index_where=Resweep.ended_at.is_(None))
        made = tx.execute(ours.returning(Resweep.id)).scalar_one_or_none()
        if made is None:
            raise BadRequest(f"a walk over {_named(kind.name, stage)} is under way: wait for its end, or cancel it")
        bounds = zip([None, *cuts], [*cuts, None], strict=True)
        queue = queue_of(kind.name, RESWEEP)
        rows = [
            {"resweep_id": made, "part": part, "queue": queue, "after": after, "until": until}
            for part, (after, until) in enumerate(bounds)
        ]
        tx.execute(sa.insert(PART), rows)
        _share_out(tx, made, speed)
        told = {"id": made, "rate": rate, "parts": len(rows)}
        audit.record(tx, "resweep.start", _named(kind.name, stage), reason=reason, **told)
        ring_after_commit(tx, queue, GENERIC)
    return int(made)


def pause(resweep_id: int, *, reason: str | None = None, session: Session | None = None) -> None:
    with joined(session) as tx:
        walk = _locked(tx, resweep_id, "paused")
        if walk.state == ResweepState.PAUSED:
            return
        _set(tx, walk, "pause", reason, state=ResweepState.PAUSED)
        tx.execute(sa.update(PART).where(*_waiting(resweep_id)).values(due_at=None))


def resume(resweep_id: int, *, reason: str | None = None, session: Session | None = None) -> None:
    """Also tries at once what waits after an error."""
    with joined(session) as tx:
        walk = _locked(tx, resweep_id, "resumed")
        _set(tx, walk, "resume", reason, state=ResweepState.RUNNING, **_measured(resweep_id))
        _share_out(tx, resweep_id, walk.rate)
        ring_after_commit(tx, queue_of(walk.kind, RESWEEP), GENERIC)


def cancel(resweep_id: int, *, reason: str | None = None, session: Session | None = None) -> None:
    """What it has put into queues stays there."""
    with joined(session) as tx:
        walk = _locked(tx, resweep_id, "cancelled")
        _set(tx, walk, "cancel", reason, state=ResweepState.CANCELLED, ended_at=sa.func.clock_timestamp())
        tx.execute(sa.update(PART).where(*_waiting(resweep_id)).values(state=PartState.DONE))


def change_rate(
    resweep_id: int, rate: str | None, *, reason: str | None = None, session: Session | None = None
) -> None:
    """`rate`: such as `100/s`, or None for no limit."""
    speed = checked_speed(rate)
    with joined(session) as tx:
        walk = _locked(tx, resweep_id, "given another rate")
        _set(tx, walk, "rate", reason, told=rate, rate=speed, **_measured(resweep_id))
        if walk.state == ResweepState.RUNNING:
            _share_out(tx, resweep_id, speed)
            ring_after_commit(tx, queue_of(walk.kind, RESWEEP), GENERIC)


def progress(resweep_id: int, *, session: Session | None = None) -> Progress:
    with joined(session) as tx:
        row = tx.execute(_seen().where(Resweep.id == _checked(resweep_id))).one_or_none()
    if row is None:
        raise _missing(resweep_id)
    return _progress(row)


def overview(limit: int = 100, *, live: bool = False, session: Session | None = None) -> list[Progress]:
    """The latest first. `live`: only those that have not ended."""
    if type(limit) is not int or not 1 <= limit <= LISTED_MOST:
        raise BadRequest(f"limit={limit!r:.100} must be a whole number from 1 to {LISTED_MOST}")
    query = _seen().order_by(Resweep.id.desc()).limit(limit)
    with joined(session) as tx:
        return [_progress(row) for row in tx.execute(query.where(Resweep.ended_at.is_(None)) if live else query)]


def page_of(rate: float | None) -> int:
    """How many entities are asked about at once, so that a page is no more than a second of the rate."""
    return PAGE if rate is None else max(1, min(PAGE, int(rate)))


def _asked(what: Any) -> tuple[Kind, str]:
    if isinstance(what, Kind) or (isinstance(what, type) and issubclass(what, Watched)):
        return _with_stages(kind_of(what)), SYSTEM
    if isinstance(what, str) and "." not in (name := what.removeprefix("stage.")):
        if (found := kinds.get(name)) is not None:
            return _with_stages(found), SYSTEM
        raise NotFound(f"no kind {what!r:.100} is known here; there are: {', '.join(sorted(kinds)) or 'none'}")
    definition = definition_of(what)
    return definition.kind, definition.name


def _with_stages(kind: Kind) -> Kind:
    if not of_kind(kind.name):
        raise BadRequest(f"no stage of {kind.name} is declared here: there is nobody to ask")
    return kind


def _named(kind: str, stage: str) -> str:
    return kind if stage == SYSTEM else f"{kind}.{stage}"


def _checked(resweep_id: int) -> int:
    if type(resweep_id) is not int or not 0 < resweep_id < 2**63:
        raise BadRequest(f"{resweep_id!r:.100} is not the id of a walk, which is a whole number from 1")
    return resweep_id


def _missing(resweep_id: int) -> NotFound:
    return NotFound(f"there is no walk {resweep_id}")


def _locked(tx: Session, resweep_id: int, verb: str) -> Row[Any]:
    """The walk before its parts, as everybody who locks both."""
    query = sa.select(*Resweep.__table__.c).where(Resweep.id == _checked(resweep_id))
    row = tx.execute(query.with_for_update(key_share=True)).one_or_none()
    if row is None:
        raise _missing(resweep_id)
    if row.state not in LIVE:
        raise BadRequest(f"walk {resweep_id} is {row.state} and cannot be {verb}: start another one")
    return row


def _set(tx: Session, walk: Row[Any], action: str, reason: str | None, *, told: Any = UNCHANGED, **values: Any) -> None:
    tx.execute(sa.update(Resweep).where(Resweep.id == walk.id).values(**values))
    detail = {} if told is UNCHANGED else {"rate": told}
    audit.record(tx, f"resweep.{action}", _named(walk.kind, walk.stage), reason=reason, id=walk.id, **detail)


def _measured(resweep_id: int) -> dict[str, Any]:
    """From now on."""
    asked = sa.select(sa.func.sum(PART.c.asked)).where(PART.c.resweep_id == resweep_id).scalar_subquery()
    return {"measured_from": sa.func.clock_timestamp(), "asked_before": asked}


def _waiting(resweep_id: int) -> Iterable[sa.ColumnElement[bool]]:
    return PART.c.resweep_id == resweep_id, PART.c.state == PartState.WAITING


def _share_out(tx: Session, resweep_id: int, rate: float | None) -> None:
    """A turn for each part that waits, one page after the other; those that are walked take theirs afterwards."""
    seconds = 0.0 if rate is None else page_of(rate) / rate
    place = sa.func.row_number().over(order_by=PART.c.part) - 1
    turns = sa.select(PART.c.part, place.label("place")).where(*_waiting(resweep_id)).cte("turns")
    tx.execute(
        sa.update(PART)
        .where(*_waiting(resweep_id), PART.c.part == turns.c.part)
        .values(due_at=sa.func.clock_timestamp() + _seconds(turns.c.place * sa.literal(seconds)), not_before=None)
    )
    last = sa.select(sa.func.greatest(sa.func.count() - 1, 0)).select_from(PART).where(*_waiting(resweep_id))
    paced_to = sa.func.clock_timestamp() + _seconds(last.scalar_subquery() * sa.literal(seconds))
    tx.execute(sa.update(Resweep).where(Resweep.id == resweep_id).values(paced_to=paced_to))


def _seconds(amount: Any) -> sa.ColumnElement[timedelta]:
    return sa.func.make_interval(0, 0, 0, 0, 0, 0, sa.cast(amount, sa.Double), type_=sa.Interval)


def _seen() -> sa.Select[Any]:
    errors = sa.func.array_agg(postgresql.aggregate_order_by(PART.c.error, PART.c.part), type_=ARRAY(sa.Text))
    sums = (
        sa.select(
            *(sa.cast(sa.func.sum(PART.c[name]), sa.BigInteger).label(name) for name in ("asked", "wanted", "failed")),
            sa.func.count().label("parts"),
            sa.func.count().filter(PART.c.state == PartState.DONE).label("parts_done"),
            errors.filter(PART.c.error.is_not(None))[1].label("error"),
        )
        .where(PART.c.resweep_id == Resweep.id)
        .lateral("sums")
    )
    until = sa.func.coalesce(Resweep.ended_at, sa.func.clock_timestamp())
    spent = sa.cast(sa.extract("epoch", until - Resweep.measured_from), sa.Double)
    return sa.select(*Resweep.__table__.c, *sums.c, spent.label("spent")).join_from(Resweep, sums, sa.true())


def _progress(row: Row[Any]) -> Progress:
    made = row.asked - row.asked_before
    counted = row.state != ResweepState.PAUSED and row.spent > 0 and made > 0
    own = {
        name: row._mapping[name]
        for name in ("id", "kind", "rate", "total", "asked", "wanted", "failed", "parts", "parts_done", "error")
    }
    return Progress(
        **own,
        stage=None if row.stage == SYSTEM else row.stage,
        state=ResweepState(row.state),
        requested_by=row.requested_by,
        started_at=row.started_at,
        ended_at=row.ended_at,
        rate_so_far=made / row.spent if counted else None,
    )
