"""Customers: orders come in, each with its process in one transaction; some are rolled back, and their processes with
them. Beside them sits the clerk who approves."""

from __future__ import annotations

import argparse
import random
import threading
import time

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from orders import clerk
from orders.fulfil import fulfil
from orders.models import Order, create_tables
from orders.outside import ABANDONED, PENNILESS
from orders.proof import prove
from tidemill import TidemillError, start, transaction

CUSTOMERS = ["alice", "bob", "carol", "dave", PENNILESS, clerk.REJECTED, clerk.FORGOTTEN]
WEIGHTS = [6, 6, 6, 6, 2, 2, 2]
WAREHOUSES = ["north", "south", "harbour", ABANDONED]
LINE_SECONDS = 4.0
#: Of the latest orders so many are looked at for each line.
LOOKED_AT = 200


class Changed(Exception):
    """The customer's mind, before the commit."""


def place_order(session: Session, customer: str, parts: dict[str, int]) -> tuple[int, int]:
    """The ids of the order and of its process: both are there after the commit, or neither."""
    order = Order(customer=customer, parts=parts)
    session.add(order)
    session.flush()  # gives it its id
    # Whoever starts the process of this order again is given the same one.
    return order.id, start(
        fulfil,
        order.id,
        custom_id=f"order-{order.id}",
        idempotency_key=str(order.id),
        attributes={"customer": customer},
        session=session,
    )


def basket() -> dict[str, int]:
    weights = [5, 5, 5, 1]
    chosen = set(random.choices(WAREHOUSES, weights, k=random.randint(1, 4)))  # noqa: S311
    return {warehouse: random.randint(5, 60) for warehouse in sorted(chosen)}  # noqa: S311


def place(pause: float, number: int | None) -> None:
    """A row of orders, and a line about them now and then."""
    placed, next_line, last = 0, time.monotonic(), 0
    while number is None or placed < number:
        try:
            customer = random.choices(CUSTOMERS, WEIGHTS)[0]  # noqa: S311
            with transaction() as session:
                _, process = place_order(session, customer, basket())
                if random.random() < 0.1:  # noqa: S311
                    raise Changed
            placed, last = placed + 1, process
            if time.monotonic() >= next_line:
                next_line = time.monotonic() + LINE_SECONDS
                print(f"{prove(LOOKED_AT).told()}; the last one: tidemill process show {last}", flush=True)
        except Changed:
            pass
        except (TidemillError, SQLAlchemyError) as error:
            print(f"the customers wait: {error}", flush=True)
        time.sleep(random.uniform(0.5, 1.5) * pause)  # noqa: S311


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=None, help="stop after so many")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two orders")
    parser.add_argument("--stay", action="store_true", help="the clerk sits there until this is ended")
    options = parser.parse_args()
    create_tables()
    sits = threading.Thread(target=clerk.main, name="clerk", daemon=True)
    sits.start()
    place(options.pause, options.orders)
    print(prove(LOOKED_AT).told(), flush=True)
    if options.stay:
        sits.join()


if __name__ == "__main__":
    main()
