"""B3: a lone job in an idle system, from its commit to the function's first line, against a bare Celery message."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench import celery_bare, product
from bench.context import Context, median, percentile
from bench.rows import AtMost, Row

# Between two samples; of random length, so that no polling loop falls in step with them.
PAUSE = (0.02, 0.12)


def _percentiles(lone: Callable[..., list[float]], context: Context, size: dict[str, Any]) -> tuple[float, float]:
    waited = lone(context, **size)
    return percentile(waited, 50), percentile(waited, 99)


def measure(context: Context) -> list[Row]:
    size = {"samples": context.size(300, 60), "warm": 20, "pause": PAUSE}
    taken = context.rounds(
        {
            "celery": partial(_percentiles, celery_bare.lone, context, size),
            "us": partial(_percentiles, product.lone, context, size),
        }
    )
    p50 = {side: tuple(values[0] for values in rounds) for side, rounds in taken.items()}
    p99 = {side: tuple(values[1] for values in rounds) for side, rounds in taken.items()}
    celery50, celery99 = median(p50["celery"]), median(p99["celery"])
    ours50, ours99 = median(p50["us"]), median(p99["us"])
    return [
        Row("B3", "us", "lone job, p50", ours50, "ms", celery50, "bare Celery", AtMost(2), p50["us"]),
        Row("B3", "us", "lone job, p99", ours99, "ms", celery99, "bare Celery", None, p99["us"]),
        Row("B3", "peer", "bare Celery, lone message, p50", celery50, "ms", samples=p50["celery"]),
        Row("B3", "peer", "bare Celery, lone message, p99", celery99, "ms", samples=p99["celery"]),
    ]
