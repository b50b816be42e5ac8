"""Operations: something done to many things at once after a disaster, which survives everybody who does it (R8, R9).

    order = Order(Kind.RESTART_TASK, Filters(actor="charge", text="503"))
    preview(order).total
    operation_id = start(order, rate="50/s", reason="their API is back")
    show(operation_id).left

Promises:

- What an operation is over is chosen once, when it starts.
- Each item is done exactly once; its outcome is written in the same transaction. One that fails takes no other along.
- Any number of services works off one operation. Whoever dies loses nothing.
- Its rate holds for the cluster; pausing and cancelling take effect with the next batch.
- It pauses itself when half of what it did last has failed, or broken again.
"""

from __future__ import annotations

from recovery.operations.listing import ItemShown, Outcomes, Progress, items, late, outcomes, overview, show
from recovery.operations.model import ItemState, OperationId, OperationState
from recovery.operations.order import Ids, Kind, Named, Order
from recovery.operations.starting import Preview, Sample, preview, retry, start
from recovery.operations.steering import cancel, pause, resume

__all__ = [
    "Ids",
    "ItemShown",
    "ItemState",
    "Kind",
    "Named",
    "OperationId",
    "OperationState",
    "Order",
    "Outcomes",
    "Preview",
    "Progress",
    "Sample",
    "cancel",
    "items",
    "late",
    "outcomes",
    "overview",
    "pause",
    "preview",
    "resume",
    "retry",
    "show",
    "start",
]
