"""Pausing, resuming and cancelling operations. Audited; each holds from the next batch on, and waits for no item."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app import audit
from app.checks import checked_speed
from app.db import joined
from app.errors import BadRequest
from recovery.operations.model import OPERATION, OperationState
from recovery.operations.starting import locked

_NOW = sa.func.clock_timestamp()
UNCHANGED: Any = object()


def pause(operation_id: int, *, reason: str | None = None, session: Session | None = None) -> bool:
    """Whether that is new."""
    with joined(session) as tx:
        found = _live(tx, operation_id, "paused")
        if found.state == OperationState.PAUSED:
            return False
        _set(tx, found, "pause", reason, state=OperationState.PAUSED)
        return True


def resume(
    operation_id: int, *, rate: str | None = UNCHANGED, reason: str | None = None, session: Session | None = None
) -> bool:
    """Whether it was paused. `rate`: another one from now on, also of one that runs. How its items end is judged from
    here."""
    faster = {} if rate is UNCHANGED else {"rate": checked_speed(rate)}
    with joined(session) as tx:
        found = _live(tx, operation_id, "resumed")
        was_paused = bool(found.state == OperationState.PAUSED)
        if not was_paused and not faster:
            return False
        ended = OPERATION.c.done + OPERATION.c.failed + OPERATION.c.skipped
        anew = {"why": None, "next_at": _NOW, "measured_from": _NOW, "ended_before": ended}
        _set(tx, found, "resume", reason, state=OperationState.RUNNING, **anew, **faster)
        return was_paused


def cancel(operation_id: int, *, reason: str | None = None, session: Session | None = None) -> None:
    """What was done stays done; what waits is left alone."""
    with joined(session) as tx:
        found = _live(tx, operation_id, "cancelled")
        _set(tx, found, "cancel", reason, state=OperationState.CANCELLED, ended_at=_NOW)


def _live(tx: Session, operation_id: int, verb: str) -> Row[Any]:
    found = locked(tx, operation_id)
    if found.ended_at is not None:
        raise BadRequest(f"operation {operation_id} is {found.state} and cannot be {verb}: start another one")
    return found


def _set(tx: Session, found: Row[Any], action: str, reason: str | None, **values: Any) -> None:
    tx.execute(sa.update(OPERATION).where(OPERATION.c.id == found.id).values(**values))
    rate = {"rate": values["rate"]} if "rate" in values else {}
    audit.record(tx, f"operation.{action}", found.kind, reason=reason, id=found.id, **rate)
