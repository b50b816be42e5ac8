"""What is kept of operations that have ended, for `TIDEMILL_LOG_RETENTION`; and the processes that they still want."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from app.checks import limited
from app.db import transaction
from app.settings import settings
from recovery.operations.model import ITEM, LIVE, OPERATION, ItemState

LIMIT = 10_000


@dataclass(frozen=True)
class Report:
    items: int = 0
    operations: int = 0
    more: bool = False


@limited
def run_once(limit: int = LIMIT) -> Report:
    """Removes at most `limit` items of the operation that ended first; then itself. Any number may run at once."""
    old = sa.and_(OPERATION.c.ended_at.is_not(None), OPERATION.c.ended_at < sa.func.now() - settings().log_retention)
    first = sa.select(OPERATION.c.id).where(old).order_by(OPERATION.c.ended_at).limit(1)
    with transaction() as session:
        operation_id = session.execute(first.with_for_update(skip_locked=True)).scalar_one_or_none()
        if operation_id is None:
            return Report()
        own = ITEM.c.operation_id == operation_id
        some = sa.select(ITEM.c.position).where(own).limit(limit)
        gone: Any = session.execute(sa.delete(ITEM).where(own, ITEM.c.position.in_(some)))
        if gone.rowcount == limit:
            return Report(limit, more=True)
        session.execute(sa.delete(OPERATION).where(OPERATION.c.id == operation_id))
        return Report(gone.rowcount, 1, more=True)


def holding(process_id: Any) -> sa.ColumnElement[bool]:
    """Whether the process waits in an operation that has not ended."""
    # As the index has it.
    waits = sa.and_(ITEM.c.state == sa.literal_column(f"'{ItemState.WAITING}'"), ITEM.c.process_id.is_not(None))
    live = ITEM.join(OPERATION, sa.and_(OPERATION.c.id == ITEM.c.operation_id, LIVE))
    return sa.exists(sa.select(ITEM.c.position).select_from(live).where(ITEM.c.process_id == process_id, waits))
