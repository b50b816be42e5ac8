"""The process. Its middle step is done by whoever polls for it: `approve.py` or `approve.sh`."""

from __future__ import annotations

from typing import Any

from tidemill import Failure, Flow, actor, decider


@actor(outside=True, work_timeout="5s", fail_types=["Declined"])
def approve(order_id: str, amount: int) -> dict[str, Any]:
    """Whether this may be bought. Its body is never called: it says what is asked, and what the answer is like."""
    raise NotImplementedError


@actor
def order(order_id: str, approval: dict[str, Any]) -> str:
    return f"{order_id} is ordered, approved by {approval['by']}"


@actor
def tell(order_id: str, why: str) -> str:
    return f"{order_id} is not ordered: {why}"


@decider
def purchase(flow: Flow, order_id: str, amount: int) -> Any:
    return flow.call(decide, order_id, flow.call(approve, order_id, amount))


@decider
def decide(flow: Flow, order_id: str, approval: Any) -> Any:
    if isinstance(approval, Failure):
        return flow.call(tell, order_id, approval.message)
    return flow.call(order, order_id, approval)
