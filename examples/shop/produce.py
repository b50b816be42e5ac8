"""Customers: orders come in, each with its jobs in one transaction. Some are rolled back, and their jobs with them."""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass, field

import sqlalchemy as sa

from shop.models import Mail, Order, create_tables
from shop.tasks import charge, resize_photo, send_mail, track
from tidemill import TidemillError, enqueue, enqueue_many, transaction

CUSTOMERS = ["alice", "bob", "carol", "dave", "erin", "mallory"]
WEIGHTS = [8, 8, 8, 8, 8, 1]
LINE_SECONDS = 2.0


class OutOfStock(Exception):
    pass


@dataclass
class Tally:
    committed: int = 0
    rolled_back: list[int] = field(default_factory=list)


def place_order(tally: Tally) -> None:
    order = Order(customer=random.choices(CUSTOMERS, WEIGHTS)[0], amount=random.randint(5, 200))  # noqa: S311
    try:
        with transaction() as session:
            session.add(order)
            session.flush()  # gives it its id
            order_id = order.id
            enqueue(send_mail.s(order_id), session=session, key=f"mail:{order_id}")
            enqueue(charge.s(order_id), session=session, priority=10)
            enqueue(resize_photo.s(order_id), session=session)
            enqueue_many([track.s(order_id) for _ in range(random.randint(1, 10))], session=session)  # noqa: S311
            if random.random() < 0.15:  # noqa: S311
                raise OutOfStock
    except OutOfStock:
        tally.rolled_back.append(order_id)
    else:
        tally.committed += 1


def show(tally: Tally) -> None:
    with transaction() as session:
        wrong = session.scalar(sa.select(sa.func.count()).where(Mail.order_id.in_(tally.rolled_back)))
    print(
        f"orders: {tally.committed} committed, {len(tally.rolled_back)} rolled back; "
        f"{wrong} mails were sent for those that were rolled back",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=None, help="stop after so many")
    parser.add_argument("--pause", type=float, default=0.8, help="seconds between two orders")
    options = parser.parse_args()
    create_tables()
    tally, next_line, placed = Tally(), time.monotonic(), 0
    while options.orders is None or placed < options.orders:
        try:
            place_order(tally)
            placed += 1
            if time.monotonic() >= next_line:
                next_line = time.monotonic() + LINE_SECONDS
                show(tally)
        except TidemillError as error:
            print(f"the shop waits: {error}", flush=True)
        time.sleep(random.uniform(0.5, 1.5) * options.pause)  # noqa: S311
    show(tally)


if __name__ == "__main__":
    main()
