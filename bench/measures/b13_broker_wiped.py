"""B13: The broker wiped.

The visits of B1 with and without the loss of everything in the broker once the first of them are being made, from the
commit that offers all until all are done. It is the broker's numbered database that is emptied, which holds all that
is ours.
"""

from __future__ import annotations

from functools import partial

from bench import visits
from bench.context import Context
from bench.rows import AtMost, Row


def _seconds(context: Context, count: int, *, wipe: bool) -> float:
    with visits.running(context, count) as services:
        return count / visits.work_off(context, services, "offer", count, wipe=wipe).rate


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
        Row(
            "B13", "us", f"{count:,} visits, broker wiped at once", "s", wiped, undisturbed, "undisturbed", AtMost(1.3)
        ),
        Row("B13", "us", f"{count:,} visits", "s", undisturbed),
    ]
