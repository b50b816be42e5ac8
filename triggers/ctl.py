"""The control table: how far each data set has got.

Promises:
- `advance` moves parameters forward, all of one call or none. The same value again is no change; a value that lies
  behind is refused, and so is one so far ahead that nothing could come after it.
- `restate` may move a value anywhere. It wants a reason, is audited, and names the tasks that rest on the parameter.
- Every change, by whatever program, leaves a row in `ctl_change` with the id of its transaction.
- A `Follower` hands out every change once, also one that commits after changes with a higher id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from app import audit
from app.arrays import Array
from app.db import joined, transaction
from app.errors import BadRequest, MovesBack, TooFarAhead
from triggers.model import Ctl, CtlChange, ReactiveLeaf, ReactiveTask
from triggers.names import NO_TEXT, name, shown

Parameter = tuple[str, str]

REASON_LIMIT = 1000
FIRST, LAST = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, tzinfo=UTC)  # as the constraint of the table
_REFUSALS: dict[str, type[BadRequest]] = {"TMBCK": MovesBack, "TMFAR": TooFarAhead, "22023": BadRequest}


@dataclass(frozen=True)
class Value:
    entity: str
    parameter: str
    value: datetime
    changed_at: datetime
    version: int
    epoch: int


@dataclass(frozen=True)
class Change:
    entity: str
    parameter: str
    value: datetime
    previous: datetime | None
    changed_at: datetime
    restated: bool
    xid: int
    id: int


@dataclass(frozen=True)
class Dependent:
    """A task whose trigger rests on a parameter; `latched`: on what it has seen of it too."""

    task: str
    latched: bool


@dataclass(frozen=True)
class Restated:
    """The tasks that rest on what was restated: rewind or forget what they have seen, or run them by hand."""

    dependents: tuple[Dependent, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(each.task for each in self.dependents)


def advance(entity: str, *, session: Session | None = None, **values: datetime) -> set[str]:
    """Moves parameters of an entity forward, in a transaction of its own or in the caller's; returns those that moved.

    >>> advance("dds.orders", loaded_to=datetime(2026, 7, 1, tzinfo=UTC))            # doctest: +SKIP
    {'loaded_to'}
    """
    moved = advance_many({(entity, parameter): value for parameter, value in values.items()}, session=session)
    return {parameter for _, parameter in moved}


def advance_many(values: Mapping[Parameter, datetime], *, session: Session | None = None) -> set[Parameter]:
    """The same for parameters of many entities, in one statement."""
    found = _checked(values, "advance")
    entities, parameters, moments = (list(column) for column in zip(*found, strict=True))
    with joined(session) as tx:
        # The caller's transaction must outlive a refusal.
        with tx.begin_nested() if session is not None else nullcontext():
            try:
                rows = tx.execute(_ADVANCE, {"entities": entities, "parameters": parameters, "moments": moments}).all()
            except DBAPIError as error:
                raise _refusal(error) from None
        return {(row.entity, row.parameter) for row in rows}


_ADVANCE = sa.select(
    sa.func.tidemill.advance_many(
        sa.bindparam("entities", type_=Array(sa.Text)),
        sa.bindparam("parameters", type_=Array(sa.Text)),
        sa.bindparam("moments", type_=Array(TIMESTAMP(timezone=True))),
    ).table_valued("entity", "parameter", "value")
)


def _refusal(error: DBAPIError) -> Exception:
    orig: Any = error.orig
    kind = _REFUSALS.get(getattr(orig, "pgcode", "") or "")
    if kind is None:
        return error
    hint = f". {orig.diag.message_hint}" if orig.diag.message_hint else ""
    return kind(f"{orig.diag.message_primary}{hint}")


def _checked(values: Mapping[Parameter, datetime], what: str) -> list[tuple[str, str, datetime]]:
    if not values:
        raise BadRequest(f"nothing to {what}: name a parameter and its value, as in loaded_to=…")
    # In the order in which the database locks them.
    return sorted((*checked_name(*pair(name)), checked_value(name, value)) for name, value in values.items())


def pair(name: Any) -> Parameter:
    if not isinstance(name, tuple) or len(name) != 2:
        raise BadRequest(f"{shown(name)} is not a parameter: write a pair, such as ('dds.orders', 'loaded_to')")
    return name


def checked_name(entity: str, parameter: str) -> Parameter:
    return name("entity", entity), name("parameter", parameter)


def checked_value(name: Parameter, value: datetime) -> datetime:
    """In UTC: Postgres does not read every offset that Python can have."""
    words = ".".join(name)
    if not isinstance(value, datetime):
        raise BadRequest(
            f"{words}={shown(value)} must be a datetime with a time zone, as datetime(2026, 7, 1, tzinfo=UTC)"
        )
    if value.tzinfo is None or value.utcoffset() is None:
        raise BadRequest(
            f"{words}={value.isoformat()} has no time zone: write datetime(…, tzinfo=UTC), or that of its zone"
        )
    if value < FIRST:
        raise BadRequest(f"{words}={value.isoformat()} lies before the year 2")
    if value > LAST:
        raise TooFarAhead(f"{words}={value.isoformat()} lies after {LAST:%Y-%m-%d}, which is the last value there is")
    return value.astimezone(UTC)


def checked_reason(reason: str) -> str:
    bad = type(reason) is not str or not reason.strip() or len(reason) > REASON_LIMIT
    if bad or NO_TEXT.search(re.sub(r"[\t\r\n]", " ", reason)):
        raise BadRequest(f"reason={shown(reason)} must say in 1 to {REASON_LIMIT} characters why the value was wrong")
    return reason


def get(entity: str, parameter: str, *, session: Session | None = None) -> datetime | None:
    """How far the parameter has got; None where it has no value yet."""
    checked_name(entity, parameter)
    query = sa.select(Ctl.value).where(Ctl.entity == entity, Ctl.parameter == parameter)
    with joined(session) as tx:
        return tx.execute(query).scalar_one_or_none()


def of(entity: str, parameter: str | None = None, *, session: Session | None = None) -> list[Value]:
    """The parameters of an entity, or one of them, with all that is known."""
    checked_name(entity, "any" if parameter is None else parameter)
    query = _VALUES.where(Ctl.entity == entity).order_by(Ctl.parameter)
    if parameter is not None:
        query = query.where(Ctl.parameter == parameter)
    with joined(session) as tx:
        return [Value(*row) for row in tx.execute(query)]


_VALUES = sa.select(Ctl.entity, Ctl.parameter, Ctl.value, Ctl.changed_at, Ctl.version, Ctl.epoch)


def values(
    pattern: str | None = None,
    *,
    limit: int = 1000,
    after: Parameter | None = None,
    session: Session | None = None,
) -> list[Value]:
    """The parameters of the entities that a pattern such as `mart.*` names, or of all; those `after` the last one of
    the page before."""
    query = _VALUES.where(_matches(Ctl.entity, pattern)).order_by(Ctl.entity, Ctl.parameter).limit(limit)
    if after is not None:
        last = sa.tuple_(*(sa.literal(each) for each in checked_name(*after)))
        query = query.where(sa.tuple_(Ctl.entity, Ctl.parameter) > last)
    with joined(session) as tx:
        return [Value(*row) for row in tx.execute(query)]


def _matches(column: Any, pattern: str | None) -> sa.ColumnElement[bool]:
    """`*` stands for any text; all other signs for themselves."""
    if pattern is None:
        return sa.true()
    if NO_TEXT.search(pattern):
        raise BadRequest(f"the pattern {shown(pattern)} has a control character in it: write it without")
    like = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")
    found: sa.ColumnElement[bool] = column.like(like, escape="\\")
    return found


def history(
    entity: str,
    parameter: str,
    *,
    limit: int = 100,
    before_id: int | None = None,
    session: Session | None = None,
) -> list[Change]:
    """The last changes of a parameter, the newest first; those before the last one of the page before."""
    checked_name(entity, parameter)
    c = CtlChange
    query = _CHANGES.where(c.entity == entity, c.parameter == parameter).order_by(c.id.desc()).limit(limit)
    if before_id is not None:
        query = query.where(c.id < before_id)
    with joined(session) as tx:
        return [Change(*row) for row in tx.execute(query)]


_CHANGES = sa.select(
    CtlChange.entity,
    CtlChange.parameter,
    CtlChange.value,
    CtlChange.previous,
    CtlChange.changed_at,
    CtlChange.restated,
    sa.cast(sa.cast(CtlChange.xid, sa.Text), sa.BigInteger),
    CtlChange.id,
)


class Follower:
    """What was committed after it was made, in the order of ids within each call of `new`.

    New is a change whose transaction was not over in the snapshot of the last call and is now. An id bounds nothing,
    not even together with the snapshot: it ends at the last transaction that was over, and one above that may have had
    its ids for long.
    """

    def __init__(self, pattern: str | None = None) -> None:
        self._where = _matches(CtlChange.entity, pattern)
        with transaction() as tx:
            self._snapshot = _snapshot(tx)

    def new(self) -> list[Change]:
        _, after, running = self._snapshot.split(":")
        c = CtlChange
        late = [c.xid == xid for xid in running.split(",") if xid]
        query = _CHANGES.where(sa.or_(c.xid >= after, *late), self._where).order_by(c.id)
        with transaction() as tx:
            snapshot = _snapshot(tx)
            # Nothing has ended meanwhile, nowhere on the server.
            rows = tx.execute(query).all() if snapshot != self._snapshot else []
        self._snapshot = snapshot
        return [Change(*row) for row in rows]


def _snapshot(tx: Session) -> str:
    """`xmin:xmax:running,…`; what this transaction reads from now on is as of here."""
    tx.connection(execution_options={"isolation_level": "REPEATABLE READ"})
    return tx.execute(sa.select(sa.cast(sa.func.pg_current_snapshot(), sa.Text))).scalar_one()


def restate(entity: str, *, reason: str, session: Session | None = None, **values: datetime) -> Restated:
    """Sets parameters to any value, back too: what was said of the data before was wrong.

    Triggers that rest on them see it as it is: a `Delta` fires when the value has passed what the task saw by its
    delta again. Until a person rewinds that, what is loaded anew below it is not processed.
    """
    named = {(entity, parameter): value for parameter, value in values.items()}
    return restate_many(named, reason=reason, session=session)


def restate_many(values: Mapping[Parameter, datetime], *, reason: str, session: Session | None = None) -> Restated:
    """The same for parameters of many entities, all of them or none."""
    checked_reason(reason)
    found = _checked(values, "restate")
    with joined(session) as tx:
        for entity, name, value in found:
            before = _restate_one(tx, entity, name, value)
            words = {"parameter": name, "from": before and before.astimezone(UTC).isoformat(), "to": value.isoformat()}
            audit.record(tx, "ctl.restate", f"{entity}.{name}", reason=reason, **words)
        return Restated(tuple(dependents(tx, [(entity, name) for entity, name, _ in found])))


def _restate_one(tx: Session, entity: str, name: str, value: datetime) -> datetime | None:
    """What it was, under the lock: also where somebody else gave it its first value a moment ago."""
    insert = postgresql.insert(Ctl).values(entity=entity, parameter=name, value=value).on_conflict_do_nothing()
    if tx.execute(insert.returning(Ctl.version)).first() is not None:
        return None
    this = (Ctl.entity == entity, Ctl.parameter == name)
    before = tx.execute(sa.select(Ctl.value).where(*this).with_for_update()).scalar_one()
    # Its version moves by a trigger.
    tx.execute(sa.update(Ctl).where(*this).values(value=value, epoch=Ctl.epoch + 1))
    return before


def dependents(session: Session, parameters: Sequence[Parameter], limit: int | None = None) -> list[Dependent]:
    """The registered tasks whose triggers rest on one of the parameters, by name; no more than `limit`."""
    leaf, wanted = ReactiveLeaf, list(parameters)
    own = sa.tuple_(leaf.entity, leaf.parameter).in_(wanted)
    reads = sa.or_(own, sa.tuple_(leaf.ref_entity, leaf.ref_parameter).in_(wanted))
    query = (
        sa.select(ReactiveTask.name, sa.func.bool_or(sa.and_(own, leaf.latched)))
        .join(leaf, leaf.task_id == ReactiveTask.id)
        .where(reads, ReactiveTask.removed_at.is_(None))
        .group_by(ReactiveTask.name)
        .order_by(ReactiveTask.name)
        .limit(limit)
    )
    return [Dependent(*row) for row in session.execute(query)]
