"""Whether every order that has ended is as it should be, and whether each effect was there once; `python -m
orders.proof` says it, and exits with 1 if not. With `--within 60`, all must have ended by then."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from orders.clerk import FORGOTTEN, REJECTED
from orders.fulfil import APPROVED_FROM
from orders.models import PLACED, SHIPPED, Effect, Order
from orders.outside import ABANDONED, PENNILESS
from tidemill import transaction


@dataclass(frozen=True)
class Proof:
    orders: int
    #: By status.
    ended: dict[str, int]
    #: Sums of money, by kind of effect.
    sums: dict[str, int]
    effects: int
    asked_again: int
    wrong: tuple[str, ...]

    @property
    def open(self) -> int:
        return self.ended.get(PLACED, 0)

    def told(self) -> str:
        done = ", ".join(f"{count} {status}" for status, count in sorted(self.ended.items()))
        kept = self.sums.get("shipment", 0) - self.sums.get("recall", 0)
        return (
            f"fulfilment: {self.orders} orders, {done or 'none yet'}; of those that have ended, charged "
            f"{self.sums.get('charge', 0)} = shipped {kept} + refunded {self.sums.get('refund', 0)}; {self.effects} "
            f"effects, asked for again {self.asked_again} times; "
            + ("; ".join(self.wrong) or "each is there once, and each order as it should be")
        )


def prove(latest: int | None = None) -> Proof:
    """Of all orders, or of those that were placed last."""
    with transaction() as session:
        # All that is compared is of one moment.
        session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        orders = session.scalars(sa.select(Order).order_by(Order.id.desc()).limit(latest)).all()
        effects: dict[int, list[Effect]] = defaultdict(list)
        for effect in session.scalars(sa.select(Effect).where(Effect.order_id.in_([order.id for order in orders]))):
            effects[effect.order_id].append(effect)
        ended = [order for order in orders if order.status != PLACED]
        sums: Counter[str] = Counter()
        for order in ended:
            for effect in effects[order.id]:
                sums[effect.kind] += effect.amount
        every = [effect for each in effects.values() for effect in each]
        wrong = [f"order {order.id} {words}" for order in orders for words in _wrong(order, effects[order.id])]
        if sums["charge"] != sums["shipment"] - sums["recall"] + sums["refund"]:
            wrong.append("the sums do not agree")
        statuses = Counter(order.status for order in orders)
        again = sum(effect.asked - 1 for effect in every)
        return Proof(len(orders), dict(statuses), dict(sums), len(every), again, tuple(wrong))


def _wrong(order: Order, effects: Sequence[Effect]) -> Iterator[str]:
    happened = Counter((effect.kind, effect.about if effect.kind != "charge" else "") for effect in effects)
    yield from (f"has {kind} {about} {count} times" for (kind, about), count in happened.items() if count > 1)
    if order.status == PLACED:
        return
    money = {(effect.kind, effect.about): effect.amount for effect in effects if effect.kind in ("shipment", "recall")}
    shipped = {warehouse: amount for (kind, warehouse), amount in money.items() if kind == "shipment"}
    recalled = {warehouse: amount for (kind, warehouse), amount in money.items() if kind == "recall"}
    charged = sum(effect.amount for effect in effects if effect.kind == "charge")
    refunded = sum(effect.amount for effect in effects if effect.kind == "refund")
    if order.status == SHIPPED:
        if shipped != order.parts or recalled or refunded or charged != order.amount:
            yield "is shipped, and not wholly, or not paid for"
    elif shipped != recalled or charged != refunded:
        yield "is cancelled, and something of it is still shipped or paid for"
    if (order.status == SHIPPED) is not _to_be_shipped(order) and not _unanswered(happened):
        yield f"of {order.customer} is {order.status}, which it should not be"
    if not any(kind == "mail" for kind, _ in happened):
        yield "has ended, and the customer was not told"


def _to_be_shipped(order: Order) -> bool:
    large = order.amount > APPROVED_FROM
    refused = order.customer == PENNILESS or (large and order.customer in (REJECTED, FORGOTTEN))
    return not refused and ABANDONED not in order.parts


def _unanswered(happened: Counter[tuple[str, str]]) -> bool:
    """The clerk may have been away."""
    return ("mail", "nobody has approved it in time") in happened


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--within", type=float, default=None, help="wait until all have ended, so many seconds")
    options = parser.parse_args()
    proof, end = prove(), time.monotonic() + (options.within or 0)
    while proof.open and time.monotonic() < end:
        time.sleep(0.5)
        proof = prove()
    print(proof.told())
    late = options.within is not None and proof.open
    if late:
        print(f"{proof.open} orders have not ended")
    sys.exit(bool(proof.wrong or late))


if __name__ == "__main__":
    main()
