"""The deciders: what is to be done about an order, one step after the other. They do nothing themselves.

Where a step depends on how another one ended, it is asked for by a decider that is called with that end.
"""

from __future__ import annotations

from typing import Any

from orders.models import CANCELLED, SHIPPED
from orders.steps import (
    WORK_TIMEOUT,
    Basket,
    approve,
    call_back,
    charge,
    look_up,
    mail,
    refund,
    reserve,
    settle,
    ship,
)
from tidemill import Failure, Flow, Promise, decider

#: Orders of more than this are approved by a person.
APPROVED_FROM = 100
#: A week would do.
REVIEW_AFTER = "3s"


@decider(process_timeout="1d", work_timeout=WORK_TIMEOUT)
def fulfil(flow: Flow, order_id: int) -> Promise[Any]:
    """The process. Its value is that of the last step: how the order has ended."""
    basket = flow.call(look_up, order_id)
    paid = flow.call(charge, basket, flow.call(reserve, basket))
    return flow.call(after_payment, basket, paid)


@decider(work_timeout=WORK_TIMEOUT)
def after_payment(flow: Flow, basket: Basket, paid: int | Failure) -> Promise[Any]:
    if isinstance(paid, Failure):
        return _end(flow, basket, CANCELLED, "payment refused")
    if paid <= APPROVED_FROM:
        return _ship(flow, basket)
    approved = flow.call(approve, basket["id"], basket["customer"], paid)
    return flow.call(after_approval, basket, approved)


@decider(work_timeout=WORK_TIMEOUT)
def after_approval(flow: Flow, basket: Basket, approved: bool | Failure) -> Promise[Any]:  # noqa: FBT001
    if approved is True:
        return _ship(flow, basket)
    why = "nobody has approved it in time" if isinstance(approved, Failure) else "not approved"
    refunded = flow.call(refund, basket["id"], basket["amount"])
    return _end(flow, basket, CANCELLED, why, after=[refunded])


@decider(work_timeout=WORK_TIMEOUT)
def after_shipping(flow: Flow, basket: Basket, parcels: list[str | Failure]) -> Promise[Any]:
    """All warehouses have answered. Where one could not ship, what the others have shipped is called back."""
    order_id, shipped = basket["id"], [each for each in parcels if not isinstance(each, Failure)]
    if len(shipped) == len(parcels):
        ended = _end(flow, basket, SHIPPED, "shipped")
        flow.call(mail, order_id, "how was it?", after=[ended], delay=REVIEW_AFTER)
        return ended
    recalled = [flow.call(call_back, order_id, each, basket["parts"][each]) for each in shipped]
    refunded = flow.call(refund, order_id, basket["amount"], after=recalled)
    return _end(flow, basket, CANCELLED, "a part could not be shipped", after=[refunded])


def _ship(flow: Flow, basket: Basket) -> Promise[Any]:
    """From every warehouse at once."""
    parcels = [flow.call(ship, basket["id"], warehouse, amount) for warehouse, amount in basket["parts"].items()]
    return flow.call(after_shipping, basket, parcels)


def _end(flow: Flow, basket: Basket, status: str, told: str, after: list[Promise[None]] | None = None) -> Promise[Any]:
    """The customer is told, and then the order is settled."""
    mailed = flow.call(mail, basket["id"], told, after=after or [])
    return flow.call(settle, basket["id"], status, after=[mailed])
