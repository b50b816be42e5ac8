"""Holding back what is less important while something that an important task waits for is on its way (T21).

What it promises:

- A slot is kept for a task that waits (for its trigger, with no run of its own) while a run that is queued or running
  will deliver what it lacks. The slot is kept in the pool of the waiting task, against lower priorities only.
- For at most `max_hold`, for each run that delivers. A hold that is spent does not come again for the same run.
- The run that delivers inherits the priority of whoever waits for it, also through tasks that have no run yet: these
  are waited for as much as the one behind them. So what is held never waits for something that is itself held, as long
  as whoever writes down a plan writes both parts of it at once: what is reserved, and what is inherited.
- Pure, and the same plan for the same facts in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from app.ranks import Rank
from triggers.instants import Instant
from triggers.verdict import Parameter


@dataclass(frozen=True, slots=True)
class LiveRun:
    """Queued, or running."""

    id: int
    running: bool = False


@dataclass(frozen=True, slots=True)
class TaskNow:
    """`lacking`: the parameters of its conditions that do not hold; empty if its trigger fires. `startable`: neither
    paused, quarantined nor removed."""

    name: str
    pool: str
    priority: int
    produces: frozenset[Parameter] = frozenset()
    lacking: frozenset[Parameter] = frozenset()
    startable: bool = True
    run: LiveRun | None = None

    @property
    def waits(self) -> bool:
        return self.run is None and self.startable and bool(self.lacking)

    @property
    def can_be_held(self) -> bool:
        return self.startable if self.run is None else not self.run.running


@dataclass(frozen=True, slots=True)
class PoolNow:
    """`max_parallel` None: no limit, and nothing is held. `max_hold` in microseconds."""

    name: str
    max_parallel: int | None
    max_hold: int


@dataclass(frozen=True, slots=True)
class Hold:
    """That a slot is, or was, kept for `consumer` because `producer_run` will deliver; since when."""

    consumer: str
    producer_run: int
    since: Instant


@dataclass(frozen=True, slots=True)
class Reservation:
    """One slot of a pool, kept for one task."""

    consumer: str
    priority: int
    producer_run: int
    since: Instant
    until: Instant

    @property
    def rank(self) -> Rank:
        return -self.priority


@dataclass(frozen=True, slots=True)
class Plan:
    """`reservations`: by pool, at most one for a task. `inherited`: the priority that a waiting run is raised to.
    `holds`: what to remember and give to the next plan, spent ones too."""

    reservations: Mapping[str, tuple[Reservation, ...]]
    inherited: Mapping[int, int]
    holds: tuple[Hold, ...] = ()


def plan(now: Instant, tasks: Iterable[TaskNow], pools: Iterable[PoolNow], holds: Iterable[Hold] = ()) -> Plan:
    """`tasks`: all, or at least those with a run and those that wait for what these deliver, directly or not."""
    facts = sorted(tasks, key=lambda task: (-task.priority, task.name))
    waited_for = _waited_for(facts)
    inherited: dict[int, int] = {}
    for _, priority, producer in waited_for:
        if producer.run and not producer.run.running and priority > producer.priority:
            inherited[producer.run.id] = max(priority, inherited.get(producer.run.id, priority))
    reservations, kept = _reserve(now, facts, waited_for, {pool.name: pool for pool in pools}, holds)
    return Plan(reservations, inherited, kept)


#: Who waits, the priority with which it is waited for itself, and the task whose run will deliver.
_Waiting: TypeAlias = tuple[TaskNow, int, TaskNow]


def _waited_for(facts: list[TaskNow]) -> list[_Waiting]:
    """The best priority goes first, so the first that comes to a task gives it its own."""
    producers: dict[Parameter, list[TaskNow]] = {}
    for task in facts:
        for parameter in task.produces:
            producers.setdefault(parameter, []).append(task)
    found: list[_Waiting] = []
    met: set[str] = set()
    for first in facts:
        look = [first]
        while look:
            task = look.pop()
            if task.name in met or not task.waits:
                continue
            met.add(task.name)
            suppliers = {each.name: each for parameter in task.lacking for each in producers.get(parameter, ())}
            for supplier in suppliers.values():
                if supplier.run is None:
                    look.append(supplier)
                else:
                    found.append((task, first.priority, supplier))
    return found


def _reserve(
    now: Instant,
    facts: list[TaskNow],
    waited_for: list[_Waiting],
    pools: Mapping[str, PoolNow],
    holds: Iterable[Hold],
) -> tuple[dict[str, tuple[Reservation, ...]], tuple[Hold, ...]]:
    since = {(hold.consumer, hold.producer_run): hold.since for hold in holds}
    # What was held for a run that lives on is remembered: it may be spent.
    live = {task.run.id for task in facts if task.run is not None}
    kept = {(name, run): Hold(name, run, begun) for (name, run), begun in since.items() if run in live}
    lowest: dict[str, int] = {}
    for task in facts:
        if task.can_be_held:
            lowest[task.pool] = min(task.priority, lowest.get(task.pool, task.priority))
    active: dict[str, dict[str, Reservation]] = {}
    for consumer, priority, producer in waited_for:
        pool, run = pools.get(consumer.pool), producer.run
        if pool is None or run is None or pool.max_parallel is None or lowest[consumer.pool] >= priority:
            continue
        hold = kept.setdefault((consumer.name, run.id), Hold(consumer.name, run.id, now))
        until = hold.since + pool.max_hold
        if until <= now:
            continue
        made = Reservation(consumer.name, priority, run.id, hold.since, until)
        of_pool = active.setdefault(pool.name, {})
        # Of several runs that deliver, the one whose hold lasts longest.
        best = of_pool.setdefault(consumer.name, made)
        of_pool[consumer.name] = max(best, made, key=lambda each: (each.until, -each.producer_run))
    reservations = {name: tuple(sorted(found.values(), key=_order)) for name, found in active.items()}
    return reservations, tuple(kept[key] for key in sorted(kept))


def _order(reservation: Reservation) -> tuple[int, str]:
    return -reservation.priority, reservation.consumer
