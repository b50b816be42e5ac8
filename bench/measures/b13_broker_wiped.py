"""B13: the broker loses all that it has, just when the work on a backlog has begun."""

from __future__ import annotations

from functools import partial

from bench import visits
from bench.context import Context, median
from bench.rows import AtMost, Row


def _seconds(context: Context, count: int, *, wipe: bool) -> float:
    with visits.worker(context, count) as service:
        return count / visits.work_off(context, service, "offer", count, wipe=wipe).rate


def measure(context: Context) -> list[Row]:
    count = context.size(100_000, 20_000)
    taken = context.rounds(
        {
            "undisturbed": partial(_seconds, context, count, wipe=False),
            "wiped": partial(_seconds, context, count, wipe=True),
        }
    )
    undisturbed, wiped = tuple(taken["undisturbed"]), tuple(taken["wiped"])
    return [
        Row("B13", "us", f"{count:,} visits, broker wiped at once", median(wiped), "s", median(undisturbed),
            "undisturbed", AtMost(1.3), wiped),
        Row("B13", "us", f"{count:,} visits", median(undisturbed), "s", samples=undisturbed),
    ]  # fmt: skip
