"""The world that the steps ask for something: a bank, couriers, mail. It remembers what it was asked for by key."""

from __future__ import annotations

import random
import time

from sqlalchemy.dialects import postgresql

from orders.models import Effect
from tidemill import transaction

#: The bank gives nothing to this customer.
PENNILESS = "oscar"
#: The courier of this warehouse has gone out of business.
ABANDONED = "island"
#: Of the calls of a courier, those that fail.
FAILS = 0.2


class PaymentRefused(Exception):
    """By the bank, which will not think otherwise tomorrow."""


class CourierBusy(Exception):
    """Now; or it has taken the parcel, and its answer was lost."""


class CourierGone(Exception):
    """For good."""


def happen(kind: str, order_id: int, *, key: str, about: str = "", amount: int = 0) -> None:
    """Once for each key, however often it is asked for."""
    insert = postgresql.insert(Effect).values(key=key, kind=kind, order_id=order_id, about=about, amount=amount)
    with transaction() as session:
        session.execute(insert.on_conflict_do_update(index_elements=["key"], set_={"asked": Effect.asked + 1}))


def reserve(customer: str, order_id: int, amount: int, *, key: str) -> None:
    if customer == PENNILESS:
        raise PaymentRefused(f"the card of {customer} has no {amount}")
    happen("reservation", order_id, key=key, amount=amount)


def take_parcel(warehouse: str, order_id: int, amount: int, *, key: str) -> None:
    time.sleep(random.uniform(0.02, 0.2))  # noqa: S311
    if warehouse == ABANDONED:
        raise CourierGone(f"nobody fetches parcels at the warehouse {warehouse} any more")
    if random.random() < FAILS / 2:  # noqa: S311
        raise CourierBusy(f"the courier at the warehouse {warehouse} has no car")
    happen("shipment", order_id, key=key, about=warehouse, amount=amount)
    if random.random() < FAILS / 2:  # noqa: S311
        raise CourierBusy(f"the courier at the warehouse {warehouse} does not answer")
