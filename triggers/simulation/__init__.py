"""Simulating a warehouse: when its tasks start, how long they wait, and what they miss, without running anything.

What it promises:

- The same core decides as in a real one: the triggers' own check, the grants of a pool's rate, ranks that age, holds.
- The same input gives the same outcome, to the last digit of its `digest`.
- The cost follows what happens, not how much time goes by.

What it leaves out: workers that die, tickets, the time that a pass takes. Everything is seen at the moment at which it
happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from app.errors import BadRequest
from triggers.instants import MINUTE, Instant, shown
from triggers.simulation.comparison import Difference, compare
from triggers.simulation.conditions import Conditions
from triggers.simulation.facts import Change, Pool, Task, Warehouse
from triggers.simulation.lengths import Constant, Lengths, Spread
from triggers.simulation.outcome import Launch, Missed, Outcome, PoolFigures, Window
from triggers.simulation.world import World

__all__ = [
    "Change",
    "Constant",
    "Difference",
    "Launch",
    "Lengths",
    "Missed",
    "Outcome",
    "Pool",
    "PoolFigures",
    "Spread",
    "Task",
    "Warehouse",
    "Window",
    "compare",
    "simulate",
]

#: More launches than this are a task that runs again as soon as it ends.
MOST_LAUNCHES = 5_000_000
_TOLD_EVERY = 2000


def simulate(
    warehouse: Warehouse,
    changes: Iterable[Change],
    *,
    since: Instant,
    until: Instant,
    lengths: Lengths = Constant(MINUTE),  # noqa: B008 - it is frozen
    holds: bool = True,
    delivers: bool = True,
    keep: bool = True,
    most: int = MOST_LAUNCHES,
    progress: Callable[[Instant], None] | None = None,
    conditions: Conditions | None = None,
) -> Outcome:
    """From `since` until just before `until`; `changes` in the order of time.

    `delivers`: a run that ends well advances what its task produces, to the least value that it was started with.
    Without it, what is produced moves as `changes` say. `keep`: the launches, and not only their figures.
    """
    if until <= since:
        raise BadRequest(f"the end {shown(until)} does not lie after the beginning {shown(since)}: write a later one")
    outcome = Outcome(keep=keep)
    world = World(warehouse, lengths, outcome, since=since, holds=holds, delivers=delivers, conditions=conditions)
    for now in world.run(changes, until):
        if outcome.steps % _TOLD_EVERY == 0:
            if progress is not None:
                progress(now)
            _bounded(outcome.counts, most)
    return outcome


def _bounded(counts: Counter[str], most: int) -> None:
    if counts.total() > most:
        [(task, times)] = counts.most_common(1)
        raise BadRequest(
            f"more than {most} launches, {times} of them of {task}: give it a min_interval, a trigger that rests on "
            "what was seen, or simulate a shorter time"
        )
