"""B10: Ten million waiting.

Visits in the middle of a backlog: so many are counted while at least ten million, or ten thousand, others wait in the
same queue, ready. To fill in the ten million takes minutes, so the slices of all rounds are cut from one backlog, and
the two backlogs are measured one after the other.
"""

from __future__ import annotations

from functools import partial

from bench import product, visits
from bench.context import Context
from bench.rows import AtLeast, Row


def _slices(context: Context, waiting: int, count: int) -> list[float]:
    """Slices of one backlog, with at least `waiting` entries behind the last: to fill in ten million takes minutes."""
    rounds = 1 if context.quick else 3
    product.migrate(context)
    visits.pause(context, paused=True)
    # A slice begins warm, and is looked at only now and then.
    visits.program(context, "make_waiting", count=waiting + rounds * 2 * count)
    try:
        with product.services(context, visits.MODULES) as (_, service):
            taken = context.rounds({f"{waiting:,}": partial(visits.slice_of_waiting, context, service, count)})
    finally:
        visits.program(context, "drop")
        visits.pause(context, paused=False)
    return taken[f"{waiting:,}"]


def measure(context: Context) -> list[Row]:
    few, many, count = context.size(10_000, 1_000), context.size(10_000_000, 100_000), context.size(50_000, 5_000)
    small, large = (tuple(_slices(context, waiting, count)) for waiting in (few, many))
    return [
        Row("B10", "us", f"visits with {many:,} waiting", "/s", large, small, f"{few:,} waiting", AtLeast(0.7)),
        Row("B10", "us", f"visits with {few:,} waiting", "/s", small),
    ]
