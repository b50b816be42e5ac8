"""B9: enqueueing inside the producer's transaction, against the insert that the same Postgres does bare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench import floors, product
from bench.context import Context, median
from bench.rows import AtLeast, Row

BATCH = 1000


@dataclass(frozen=True)
class Rates:
    """Rows a second: of the call alone, and with what its caller needs to prepare it."""

    call: float
    prepared: float


def _single(context: Context, count: int) -> Rates:
    rate = product.produce(context, "single", count=count, warm=200)["rate"]
    product.empty_the_queue(context)
    return Rates(rate, rate)


def _many(context: Context, batches: int) -> Rates:
    rates = product.produce(context, "many", batches=batches, size=BATCH, warm=2)
    product.empty_the_queue(context)
    return Rates(rates["call"], rates["rate"])


def _floor(measured: Callable[[], float]) -> Rates:
    rate = measured()
    return Rates(rate, rate)


def measure(context: Context) -> list[Row]:
    count, batches = context.size(3_000, 500), context.size(50, 10)
    url = context.servers.plain_database_url
    product.migrate(context)
    taken = context.rounds(
        {
            "floor, singly": partial(_floor, partial(floors.insert_singly, url, count)),
            "us, singly": partial(_single, context, count),
            "floor, batches": partial(_floor, partial(floors.upsert_batches, url, batches, BATCH)),
            "us, batches": partial(_many, context, batches),
        }
    )
    calls = {side: tuple(rates.call for rates in rounds) for side, rounds in taken.items()}
    built = tuple(rates.prepared for rates in taken["us, batches"])
    one, thousand = median(calls["floor, singly"]), median(calls["floor, batches"])
    return [
        Row("B9", "us", "enqueue(), one a transaction", median(calls["us, singly"]), "/s", one, "floor", AtLeast(0.5),
            calls["us, singly"]),
        Row("B9", "us", f"enqueue_many(), {BATCH:,} a transaction", median(calls["us, batches"]), "/s", thousand,
            "floor", AtLeast(0.4), calls["us, batches"]),
        Row("B9", "us", "the same, Celery's building of signatures included", median(built), "/s", thousand, "floor",
            None, built),
        Row("B9", "floor", "floor: one row a commit", one, "/s", samples=calls["floor, singly"]),
        Row("B9", "floor", f"floor: unnest of {BATCH:,} with upsert", thousand, "/s", samples=calls["floor, batches"]),
    ]  # fmt: skip
