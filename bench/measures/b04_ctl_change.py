"""B4: A change of the control table.

How soon the reactive task that it starts begins, in an idle system with a scheduler and a worker running, against a
bare Celery message. The clock begins just before COMMIT of the change and ends in the task's first line.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from bench import celery_bare, product
from bench.context import Context, percentile
from bench.rows import AtMost, Row

PAUSE = (0.05, 0.15)


def measure(context: Context) -> list[Row]:
    size: dict[str, Any] = {"samples": context.size(200, 40), "warm": 20, "pause": PAUSE}
    taken = context.rounds(
        {"celery": partial(celery_bare.lone, context, **size), "us": partial(product.lone_change, context, **size)}
    )
    p50 = {side: tuple(percentile(each, 50) for each in rounds) for side, rounds in taken.items()}
    p99 = {side: tuple(percentile(each, 99) for each in rounds) for side, rounds in taken.items()}
    what = "CTL change to the task's first line"
    return [
        Row("B4", "us", f"{what}, p50", "ms", p50["us"], p50["celery"], "bare Celery", AtMost(5)),
        Row("B4", "us", f"{what}, p99", "ms", p99["us"], p99["celery"], "bare Celery"),
        Row("B4", "peer", "bare Celery, lone message, p50", "ms", p50["celery"]),
        Row("B4", "peer", "bare Celery, lone message, p99", "ms", p99["celery"]),
    ]
