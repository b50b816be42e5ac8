"""B4: a change of the control table in an idle system, from its commit to the first line of the task that it starts,
against a bare Celery message."""

from __future__ import annotations

from functools import partial

from bench import celery_bare, product
from bench.context import Context, median, percentile
from bench.rows import AtMost, Row

PAUSE = (0.05, 0.15)


def measure(context: Context) -> list[Row]:
    size = {"samples": context.size(200, 40), "warm": 20, "pause": PAUSE}
    taken = context.rounds(
        {"celery": partial(celery_bare.lone, context, **size), "us": partial(product.lone_change, context, **size)}
    )
    p50 = {side: tuple(percentile(each, 50) for each in rounds) for side, rounds in taken.items()}
    p99 = {side: tuple(percentile(each, 99) for each in rounds) for side, rounds in taken.items()}
    celery50, celery99 = median(p50["celery"]), median(p99["celery"])
    return [
        Row("B4", "us", "CTL change to the task's first line, p50", median(p50["us"]), "ms", celery50, "bare Celery",
            AtMost(5), p50["us"]),
        Row("B4", "us", "CTL change to the task's first line, p99", median(p99["us"]), "ms", celery99, "bare Celery",
            None, p99["us"]),
        Row("B4", "peer", "bare Celery, lone message, p50", celery50, "ms", samples=p50["celery"]),
    ]  # fmt: skip
