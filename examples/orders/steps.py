"""The actors: each does one thing, and may be called again. Whatever has an effect hands on the key of its task."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from orders import outside
from orders.models import Order
from tidemill import Failure, Retry, actor, this_task, transaction

#: Short, so that it can be watched how lost work is found; a minute would do.
WORK_TIMEOUT = "5s"
#: So long a person has to answer; a day would do.
APPROVAL_TIMEOUT = "15s"


class Basket(TypedDict):
    """An order, as the steps hand it on to each other."""

    id: int
    customer: str
    amount: int
    parts: dict[str, int]


@actor(work_timeout=WORK_TIMEOUT)
def look_up(order_id: int) -> Basket:
    with transaction() as session:
        order = session.get_one(Order, order_id)
        return {"id": order.id, "customer": order.customer, "amount": order.amount, "parts": order.parts}


@actor(work_timeout=WORK_TIMEOUT, fail_types=[outside.PaymentRefused])
def reserve(basket: Basket) -> str:
    """A refusal is an answer: no retry will change it. Returns what the bank knows the reservation by."""
    key = this_task().idempotency_key
    outside.reserve(basket["customer"], basket["id"], basket["amount"], key=key)
    return key


@actor(work_timeout=WORK_TIMEOUT, fail_types=[outside.PaymentRefused])
def charge(basket: Basket, reservation: str | Failure) -> int:
    """Where nothing was reserved, the refusal goes on to the decider, which reads it."""
    if isinstance(reservation, Failure):
        raise outside.PaymentRefused(reservation.message)
    outside.happen("charge", basket["id"], about=reservation, amount=basket["amount"], key=this_task().idempotency_key)
    return basket["amount"]


@actor(outside=True, work_timeout=WORK_TIMEOUT, task_timeout=APPROVAL_TIMEOUT, fail_types=["TaskTimeout"])
def approve(order_id: int, customer: str, amount: int) -> bool:
    """Done by a person, who asks what there is to approve: `orders.clerk`."""
    raise NotImplementedError


@actor(
    work_timeout=WORK_TIMEOUT,
    retry=Retry(max_attempts=12, delay="200ms", most="5s"),
    fail_types=[outside.CourierGone],
    max_parallel=4,
)
def ship(order_id: int, warehouse: str, amount: int) -> str:
    """A courier that is busy is asked again; one that has gone is an answer. Returns whose parcel it is now."""
    outside.take_parcel(warehouse, order_id, amount, key=this_task().idempotency_key)
    return warehouse


@actor(work_timeout=WORK_TIMEOUT)
def call_back(order_id: int, warehouse: str, amount: int) -> None:
    outside.happen("recall", order_id, about=warehouse, amount=amount, key=this_task().idempotency_key)


@actor(work_timeout=WORK_TIMEOUT)
def refund(order_id: int, amount: int) -> None:
    outside.happen("refund", order_id, amount=amount, key=this_task().idempotency_key)


@actor(work_timeout=WORK_TIMEOUT)
def mail(order_id: int, about: str) -> None:
    outside.happen("mail", order_id, about=about, key=this_task().idempotency_key)


@actor(work_timeout=WORK_TIMEOUT)
def settle(order_id: int, status: str) -> str:
    """The order's own row. To write the same twice is no harm."""
    with transaction() as session:
        session.execute(sa.update(Order).where(Order.id == order_id).values(status=status))
    return status
