"""What came of the last items of an operation, and whether it had better stop."""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from processes.model import BROKEN_TASK, PROCESS, TASK
from processes.states import ProcessState, TaskState
from recovery.operations.model import ITEM, ItemState
from recovery.operations.order import RESTARTING
from recovery.operations.pacing import Fate, jumped

#: Looked at; that came to something may lie further back than those that were taken last.
LOOKED_AT = 400


def why_to_stop(session: Session, operation: Row[Any], position: int) -> str | None:
    """After the items up to this position, as far as this transaction can see them."""
    restarting = operation.kind in RESTARTING
    parameters = {"p_id": operation.id, "p_to": position, "p_since": operation.measured_from}
    rows = session.execute(_last(restarting=restarting), parameters)
    return jumped([Fate(row.fate) for row in rows])


@cache
def _last(*, restarting: bool) -> sa.Select[Any]:
    """Since it was started, or resumed: what was judged before is not judged again."""
    own = (
        sa.select(ITEM.c.position, ITEM.c.process_id, ITEM.c.number, ITEM.c.state, ITEM.c.at)
        .where(
            ITEM.c.operation_id == sa.bindparam("p_id", type_=sa.BigInteger),
            ITEM.c.position <= sa.bindparam("p_to", type_=sa.BigInteger),
            ITEM.c.position > sa.bindparam("p_to", type_=sa.BigInteger) - LOOKED_AT,
            ITEM.c.state.in_([ItemState.DONE, ItemState.FAILED]),
            ITEM.c.at >= sa.bindparam("p_since", type_=ITEM.c.at.type),
        )
        .order_by(ITEM.c.position.desc())
        .subquery("own")
    )
    return sa.select(_fate(own.c, restarting=restarting).label("fate")).order_by(own.c.position.desc())


def _fate(item: Any, *, restarting: bool) -> Any:
    failed = (item.state == ItemState.FAILED, Fate.FAILED.value)
    if not restarting:
        return sa.case(failed, else_=Fate.OPEN.value)
    of_process = BROKEN_TASK.c.process_id == item.process_id
    broke = sa.exists().where(of_process, BROKEN_TASK.c.at > item.at)
    finished = sa.exists().where(PROCESS.c.id == item.process_id, PROCESS.c.state == ProcessState.FINISHED)
    own = (TASK.c.process_id == item.process_id, TASK.c.number == item.number)
    well = sa.exists().where(*own, TASK.c.state == TaskState.FINISHED, TASK.c.ended_at > item.at)
    return sa.case(
        failed,
        (broke, Fate.BROKE_AGAIN.value),
        (sa.or_(finished, well), Fate.WELL.value),
        else_=Fate.OPEN.value,
    )
