"""The control table: how far each data set has got.

Promises:
- `advance` moves parameters forward, all of one call or none. The same value again is no change; a value that lies
  behind is refused, and so is one so far ahead that nothing could come after it.
- `restate` may move a value anywhere. It wants a reason, is audited, and names the tasks that rest on the parameter.
- Every change, by whatever program, leaves a row in `ctl_change` with the id of its transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from app import audit
from app.db import joined
from app.errors import BadRequest, MovesBack, TooFarAhead
from triggers.model import Ctl, CtlChange, ReactiveLeaf, ReactiveTask

Parameter = tuple[str, str]

NAME_LIMIT, REASON_LIMIT = 200, 1000
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
    value: datetime
    previous: datetime | None
    changed_at: datetime
    restated: bool
    xid: int
    id: int


@dataclass(frozen=True)
class Restated:
    """`tasks`: those that rest on what was restated; rewind or forget what they have seen, or run them by hand."""

    tasks: tuple[str, ...]


def advance(entity: str, *, session: Session | None = None, **values: datetime) -> set[str]:
    """Moves parameters of an entity forward, in a transaction of its own or in the caller's; returns those that moved.

    >>> advance("dds.orders", loaded_to=datetime(2026, 7, 1, tzinfo=UTC))            # doctest: +SKIP
    {'loaded_to'}
    """
    moved = advance_many({(entity, parameter): value for parameter, value in values.items()}, session=session)
    return {parameter for _, parameter in moved}


def advance_many(values: Mapping[Parameter, datetime], *, session: Session | None = None) -> set[Parameter]:
    """The same for parameters of many entities, in one statement."""
    found = [(*checked_name(*name), checked_value(name, value)) for name, value in values.items()]
    if not found:
        raise BadRequest("nothing to advance: name a parameter and its value, as in loaded_to=…")
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
        sa.bindparam("entities", type_=ARRAY(sa.Text)),
        sa.bindparam("parameters", type_=ARRAY(sa.Text)),
        sa.bindparam("moments", type_=ARRAY(TIMESTAMP(timezone=True))),
    ).table_valued("entity", "parameter", "value")
)


def _refusal(error: DBAPIError) -> Exception:
    orig: Any = error.orig
    kind = _REFUSALS.get(getattr(orig, "pgcode", "") or "")
    if kind is None:
        return error
    hint = f". {orig.diag.message_hint}" if orig.diag.message_hint else ""
    return kind(f"{orig.diag.message_primary}{hint}")


def checked_name(entity: str, parameter: str) -> Parameter:
    for what, name in (("entity", entity), ("parameter", parameter)):
        if type(name) is not str or not name.strip() or len(name) > NAME_LIMIT or not name.isprintable():
            raise BadRequest(f"{what}={name!r:.300} must be printable text of 1 to {NAME_LIMIT} characters")
    return entity, parameter


def checked_value(name: Parameter, value: datetime) -> datetime:
    words = ".".join(name)
    if not isinstance(value, datetime):
        raise BadRequest(
            f"{words}={value!r:.100} must be a datetime with a time zone, as datetime(2026, 7, 1, tzinfo=UTC)"
        )
    if value.tzinfo is None or value.utcoffset() is None:
        raise BadRequest(
            f"{words}={value.isoformat()} has no time zone: write datetime(…, tzinfo=UTC), or that of its zone"
        )
    if not 2 <= value.year <= 9998:
        raise TooFarAhead(f"{words}={value.isoformat()} lies outside of the years 2 to 9998")
    return value


def get(entity: str, parameter: str, *, session: Session | None = None) -> datetime | None:
    """How far the parameter has got; None where it has no value yet."""
    checked_name(entity, parameter)
    query = sa.select(Ctl.value).where(Ctl.entity == entity, Ctl.parameter == parameter)
    with joined(session) as tx:
        return tx.execute(query).scalar_one_or_none()


def values(entity: str | None = None, *, limit: int = 1000, session: Session | None = None) -> list[Value]:
    """The parameters of an entity, or of those that a pattern such as `mart.*` names, or all."""
    query = sa.select(Ctl.entity, Ctl.parameter, Ctl.value, Ctl.changed_at, Ctl.version, Ctl.epoch)
    if entity is not None:
        pattern = entity.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")
        query = query.where(Ctl.entity.like(pattern, escape="\\"))
    with joined(session) as tx:
        rows = tx.execute(query.order_by(Ctl.entity, Ctl.parameter).limit(limit))
        return [Value(*row) for row in rows]


def history(
    entity: str, parameter: str, *, limit: int = 100, after: int = 0, session: Session | None = None
) -> list[Change]:
    """The last changes of a parameter, the newest first; only those with a higher id than `after`."""
    checked_name(entity, parameter)
    c = CtlChange
    query = (
        sa.select(c.value, c.previous, c.changed_at, c.restated, sa.cast(sa.cast(c.xid, sa.Text), sa.BigInteger), c.id)
        .where(c.entity == entity, c.parameter == parameter, c.id > after)
        .order_by(c.id.desc())
        .limit(limit)
    )
    with joined(session) as tx:
        return [Change(*row) for row in tx.execute(query)]


def restate(entity: str, *, reason: str, session: Session | None = None, **values: datetime) -> Restated:
    """Sets parameters to any value, back too: what was said of the data before was wrong.

    Triggers that rest on them see it as it is: a `Delta` fires when the value has passed what the task saw by its
    delta again. Until a person rewinds that, what is loaded anew below it is not processed.
    """
    if type(reason) is not str or not reason.strip() or len(reason) > REASON_LIMIT:
        raise BadRequest(f"reason={reason!r:.100} must say in 1 to {REASON_LIMIT} characters why {entity} is restated")
    found = sorted(
        (*checked_name(entity, name), checked_value((entity, name), value)) for name, value in values.items()
    )
    if not found:
        raise BadRequest(f"nothing to restate: name a parameter of {entity} and its value")
    with joined(session) as tx:
        for _, name, value in found:
            before = tx.execute(
                sa.select(Ctl.value).where(Ctl.entity == entity, Ctl.parameter == name).with_for_update()
            ).scalar_one_or_none()
            tx.execute(_restating(entity, name, value))
            words = {"parameter": name, "from": before and before.isoformat(), "to": value.isoformat()}
            audit.record(tx, "ctl.restate", f"{entity}.{name}", reason=reason, **words)
        return Restated(tuple(dependents(tx, [(entity, name) for _, name, _ in found])))


def _restating(entity: str, name: str, value: datetime) -> Any:
    insert = postgresql.insert(Ctl).values(entity=entity, parameter=name, value=value)
    return insert.on_conflict_do_update(
        index_elements=["entity", "parameter"],
        set_={
            "value": insert.excluded.value,
            "version": Ctl.version + 1,
            "epoch": Ctl.epoch + 1,
            "changed_at": sa.func.clock_timestamp(),
        },
    )


def dependents(session: Session, parameters: Sequence[Parameter]) -> list[str]:
    """The registered tasks whose triggers rest on one of the parameters."""
    leaf = ReactiveLeaf
    wanted = list(parameters)
    reads = sa.or_(
        sa.tuple_(leaf.entity, leaf.parameter).in_(wanted), sa.tuple_(leaf.ref_entity, leaf.ref_parameter).in_(wanted)
    )
    query = (
        sa.select(ReactiveTask.name)
        .join(leaf, leaf.task_id == ReactiveTask.id)
        .where(reads, ReactiveTask.removed_at.is_(None))
        .distinct()
        .order_by(ReactiveTask.name)
    )
    return list(session.execute(query).scalars())
