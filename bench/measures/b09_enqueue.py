"""B9: Enqueueing.

Jobs enqueued inside the producer's transaction, against the insert that the same Postgres does bare. What is judged is
the call and its commit; a further row shows Celery's building of the signatures too.

What remains of one a transaction: the program's own time, most of it in SQLAlchemy's session, beside the flush of the
log. The statement is parsed and planned each time: one that is prepared would be missed behind a pooler that changes
the server, and in the transaction of a producer nothing can be made good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench import floors, product
from bench.context import Context
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
    one, thousand = calls["floor, singly"], calls["floor, batches"]
    return [
        Row("B9", "us", "enqueue(), one a transaction", "/s", calls["us, singly"], one, "the floor", AtLeast(0.5)),
        Row("B9", "us", f"enqueue_many(), {BATCH:,} a transaction", "/s", calls["us, batches"], thousand, "the floor",
            AtLeast(0.4)),
        Row("B9", "us", "the same, Celery's building of signatures included", "/s", built, thousand, "the floor"),
        Row("B9", "floor", "floor: one row a commit", "/s", one),
        Row("B9", "floor", f"floor: unnest of {BATCH:,} with upsert", "/s", thousand),
    ]  # fmt: skip
