"""Starting an operation: what it is over is chosen once, in one statement, and written down as its items. What comes
later is no part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import audit
from app.checks import checked_speed
from app.db import joined
from app.errors import BadRequest
from recovery.operations import selecting
from recovery.operations.listing import checked, missing
from recovery.operations.model import ITEM, OPERATION, ItemState, OperationId, OperationState
from recovery.operations.order import Order

#: Unless something else is said; `None` is as fast as it goes.
RATE = "100/s"
SAMPLE = 10
PRIORITIES = range(-32767, 32768)
REASON_LIMIT = 1000


@dataclass(frozen=True)
class Sample:
    process_id: int | None
    number: int | None
    subject: tuple[str, ...] | None
    says: str | None


@dataclass(frozen=True)
class Preview:
    """How many items there would be, and the first of them."""

    total: int
    sample: tuple[Sample, ...]


def preview(order: Order, *, sample: int = SAMPLE, session: Session | None = None) -> Preview:
    """A dry run: nothing is written."""
    with joined(session) as tx:
        query = selecting.items(tx, order)
        total = tx.execute(sa.select(sa.func.count()).select_from(query.subquery())).scalar_one()
        first = tx.execute(query.order_by(None).order_by("position").limit(min(sample, total))).all() if total else []
    rows = (Sample(row.process_id, row.number, row.subject and tuple(row.subject), row.says) for row in first)
    return Preview(total, tuple(rows))


def start(
    order: Order,
    *,
    rate: str | None = RATE,
    priority: int = 0,
    reason: str | None = None,
    session: Session | None = None,
) -> OperationId:
    """Its id. `rate`: items a second, minute, hour or day, such as `100/s`. Services do it: it goes on without the
    caller."""
    words = {"rate": checked_speed(rate), "priority": _priority(priority), "reason": checked_reason(reason)}
    with joined(session) as tx:
        made = {"kind": order.kind.value, "selection": order.selection(), "parameters": order.parameters()}
        operation_id = insert(tx, made | words)
        chosen = selecting.items(tx, order).subquery("chosen")
        columns = (chosen.c.position, chosen.c.process_id, chosen.c.number, chosen.c.subject)
        total = fill(tx, operation_id, sa.select(sa.literal(operation_id, sa.BigInteger), *columns))
        if total == 0:
            raise BadRequest("nothing matches: there is nothing to do")
        told = {"id": operation_id, "total": total, "rate": rate, **order.parameters()}
        audit.record(tx, "operation.start", order.kind.value, reason=reason, selection=order.selection(), **told)
    return operation_id


def retry(
    operation_id: int, *, rate: str | None = RATE, reason: str | None = None, session: Session | None = None
) -> OperationId:
    """A new operation, over those items that have failed; its id."""
    words = {"rate": checked_speed(rate), "reason": checked_reason(reason)}
    with joined(session) as tx:
        found = locked(tx, operation_id)
        if found.state == OperationState.RUNNING:
            raise BadRequest(f"operation {operation_id} still runs: wait for its end, or pause it")
        again = sa.select(OPERATION.c.id).where(OPERATION.c.retry_of == operation_id, OPERATION.c.ended_at.is_(None))
        if (other := tx.execute(again.limit(1)).scalar_one_or_none()) is not None:
            raise BadRequest(f"operation {other} tries them again just now")
        same = {name: getattr(found, name) for name in ("kind", "parameters", "priority")}
        made = insert(tx, same | words | {"selection": {"failed_of": operation_id}, "retry_of": operation_id})
        columns = (ITEM.c.process_id, ITEM.c.number, ITEM.c.subject)
        position = sa.func.row_number().over(order_by=ITEM.c.position)
        failed = sa.select(sa.literal(made, sa.BigInteger), position, *columns).where(
            ITEM.c.operation_id == operation_id, ITEM.c.state == ItemState.FAILED
        )
        total = fill(tx, made, failed)
        if total == 0:
            raise BadRequest(f"no item of operation {operation_id} has failed: there is nothing to try again")
        audit.record(tx, "operation.retry", str(operation_id), reason=reason, id=made, total=total, rate=rate)
    return made


def insert(tx: Session, values: dict[str, Any]) -> OperationId:
    row = values | {"created_by": audit.actor()}
    return OperationId(tx.execute(sa.insert(OPERATION).values(**row).returning(OPERATION.c.id)).scalar_one())


def fill(tx: Session, operation_id: int, rows: sa.Select[Any]) -> int:
    """How many there are. It is due from now on: what was chosen took its time."""
    names = ("operation_id", "position", "process_id", "number", "subject")
    inserted: Any = tx.execute(sa.insert(ITEM).from_select(names, rows, include_defaults=False))
    total = int(inserted.rowcount)
    now = sa.func.clock_timestamp()
    whole = sa.update(OPERATION).where(OPERATION.c.id == operation_id)
    tx.execute(whole.values(total=total, next_at=now, measured_from=now))
    return total


def locked(tx: Session, operation_id: int) -> sa.Row[Any]:
    query = sa.select(*OPERATION.c).where(OPERATION.c.id == checked(operation_id)).with_for_update()
    row = tx.execute(query).one_or_none()
    if row is None:
        raise missing(operation_id)
    return row


def _priority(priority: int) -> int:
    if type(priority) is not int or priority not in PRIORITIES:
        raise BadRequest(f"priority={priority!r:.100} must be a whole number from {PRIORITIES[0]} to {PRIORITIES[-1]}")
    return priority


def checked_reason(reason: str | None) -> str | None:
    if reason is not None and (not reason.strip() or len(reason) > REASON_LIMIT or not reason.isprintable()):
        raise BadRequest(f"reason={reason!a:.100} must say why, in 1 to {REASON_LIMIT} printable characters")
    return reason
