"""B11: Under an open transaction.

The visits of B1 with and without a transaction that took its snapshot before and stays open to the end, as somebody
may leave one: it keeps the database from cleaning up after them.
"""

from __future__ import annotations

from functools import partial

from bench import visits
from bench.context import Context
from bench.processor import Worked
from bench.rows import AtLeast, Row


def _undisturbed(context: Context, count: int) -> Worked:
    with visits.running(context, count) as services:
        return visits.work_off(context, services, "offer", count)


def _held(context: Context, count: int) -> Worked:
    with visits.running(context, count) as services, visits.held_open(context):
        return visits.work_off(context, services, "offer", count)


def measure(context: Context) -> list[Row]:
    count = context.size(60_000, 20_000)
    taken = context.rounds({"alone": partial(_undisturbed, context, count), "held": partial(_held, context, count)})
    alone, held = (tuple(each.rate for each in taken[side]) for side in ("alone", "held"))
    return [
        Row("B11", "us", f"{count:,} visits under an open transaction", "/s", held, alone, "none open", AtLeast(0.5)),
        Row("B11", "us", f"{count:,} visits", "/s", alone),
    ]
