"""B3: a lone job, and a lone visit of a new entity, in an idle system: from its commit to the function's first line,
against a bare Celery message."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from bench import celery_bare, product, visits
from bench.context import Context, median, percentile
from bench.rows import AtMost, Row

# Between two samples; of random length, so that no polling loop falls in step with them.
PAUSE = (0.02, 0.12)


@dataclass(frozen=True)
class Waited:
    """Milliseconds. `after`: from the return of COMMIT, with which a producer is done."""

    p50: float
    p99: float
    after: float = 0.0


def _celery(context: Context, size: dict[str, Any]) -> Waited:
    waited = celery_bare.lone(context, **size)
    return Waited(percentile(waited, 50), percentile(waited, 99))


def _ours(context: Context, size: dict[str, Any]) -> Waited:
    waited, after = product.lone(context, **size)
    return Waited(percentile(waited, 50), percentile(waited, 99), percentile(after, 50))


def _visit(context: Context, size: dict[str, Any]) -> Waited:
    waited = visits.lone(context, **size)
    return Waited(percentile(waited, 50), percentile(waited, 99))


def measure(context: Context) -> list[Row]:
    size = {"samples": context.size(300, 60), "warm": 20, "pause": PAUSE}
    taken = context.rounds(
        {
            "celery": partial(_celery, context, size),
            "us": partial(_ours, context, size),
            "visit": partial(_visit, context, size),
        }
    )
    p50 = {side: tuple(each.p50 for each in rounds) for side, rounds in taken.items()}
    p99 = {side: tuple(each.p99 for each in rounds) for side, rounds in taken.items()}
    after = tuple(each.after for each in taken["us"])
    celery50, celery99 = median(p50["celery"]), median(p99["celery"])
    return [
        Row("B3", "us", "lone job from before COMMIT, p50", median(p50["us"]), "ms", celery50, "bare Celery", AtMost(2),
            p50["us"]),
        Row("B3", "us", "lone job from the return of COMMIT, p50", median(after), "ms", celery50, "bare Celery", None,
            after),
        Row("B3", "us", "lone job from before COMMIT, p99", median(p99["us"]), "ms", celery99, "bare Celery", None,
            p99["us"]),
        Row("B3", "us", "lone visit from before COMMIT of an insert, p50", median(p50["visit"]), "ms", celery50,
            "bare Celery", AtMost(2), p50["visit"]),
        Row("B3", "us", "lone visit from before COMMIT of an insert, p99", median(p99["visit"]), "ms", celery99,
            "bare Celery", None, p99["visit"]),
        Row("B3", "peer", "bare Celery, lone message, p50", celery50, "ms", samples=p50["celery"]),
        Row("B3", "peer", "bare Celery, lone message, p99", celery99, "ms", samples=p99["celery"]),
    ]  # fmt: skip
