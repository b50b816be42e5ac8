"""B3: A lone job.

How soon a job, and a visit of a new entity, starts in an idle system, against a bare Celery message. The clock begins
just before COMMIT, or just before `apply_async`, and ends in the task's first line; a visit begins just before COMMIT
of the insert of a new entity and ends in the first line of `process`, the system stage between them. The 99th
percentile is shown, and not judged.

What remains: a visit of a new entity comes after a job's way and one more. The system stage claims it, loads entity and
states, and saves whom it asked; the stage claims its own entry and loads again what it is given, since between the two
anybody may have written it: seven statements, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from bench import celery_bare, product, visits
from bench.context import Context, percentile
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
    celery50, celery99 = p50["celery"], p99["celery"]
    return [
        Row("B3", "us", "lone job from before COMMIT, p50", "ms", p50["us"], celery50, "bare Celery", AtMost(2)),
        Row("B3", "us", "lone job from the return of COMMIT, p50", "ms", after, celery50, "bare Celery"),
        Row("B3", "us", "lone job from before COMMIT, p99", "ms", p99["us"], celery99, "bare Celery"),
        Row("B3", "us", "lone visit from before COMMIT of an insert, p50", "ms", p50["visit"], celery50,
            "bare Celery", AtMost(2)),
        Row("B3", "us", "lone visit from before COMMIT of an insert, p99", "ms", p99["visit"], celery99,
            "bare Celery"),
        Row("B3", "peer", "bare Celery, lone message, p50", "ms", celery50),
        Row("B3", "peer", "bare Celery, lone message, p99", "ms", celery99),
    ]  # fmt: skip
