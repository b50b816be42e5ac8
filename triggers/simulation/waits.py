"""Who waits for whom in a simulation, as facts for `triggers.holding`: only what a plan can rest on is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from triggers.holding import Hold, LiveRun, Plan, PoolNow, TaskNow, plan
from triggers.instants import END, Instant
from triggers.simulation.conditions import TIMED
from triggers.simulation.facts import Task
from triggers.simulation.lane import Lane, SimRun
from triggers.verdict import Parameter

_NOTHING: frozenset[Parameter] = frozenset()


class _Last(NamedTuple):
    """A plan, and for how long it stands if nothing related moves."""

    plan: Plan
    until: Instant


class Waits:
    """`live`: the runs by task. `startable`: whether a task without a run may get one."""

    def __init__(
        self,
        tasks: Iterable[Task],
        live: Mapping[str, SimRun],
        startable: Callable[[str], bool],
        lacking: Callable[[str], set[Parameter]],
    ) -> None:
        self._tasks = {task.name: task for task in tasks}
        self._live, self._startable, self._lacking = live, startable, lacking
        self._producers: dict[Parameter, list[str]] = {}
        for task in self._tasks.values():
            for parameter in task.produces:
                self._producers.setdefault(parameter, []).append(task.name)
        lowest = min((task.priority for task in self._tasks.values()), default=0)
        #: Those for whom anything could be held: what they wait for is produced here.
        waiting = [
            task
            for task in self._tasks.values()
            if task.priority > lowest and any(each in self._producers for each in task.trigger.parameters)
        ]
        self._important = sorted(waiting, key=lambda task: (-task.priority, task.name))
        self._holds: Sequence[Hold] = ()
        #: Somebody whom a hold would hold back, for each pool.
        self._lowest = [TaskNow("", name, priority) for name, priority in self._lowest_priorities().items()]
        self._related = self._behind(self._important)
        self._moving = {parameter for name in self._related for parameter in self._tasks[name].trigger.parameters}
        #: Conditions of these turn false as time goes by, and nobody tells.
        self._timed = any(leaf.kind in TIMED for name in self._related for leaf in self._tasks[name].trigger.leaves)
        self._last: _Last | None = None

    def _lowest_priorities(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for task in self._tasks.values():
            found[task.pool] = min(task.priority, found.get(task.pool, task.priority))
        return found

    def _behind(self, tasks: Iterable[Task]) -> set[str]:
        found: set[str] = set()
        look = [task.name for task in tasks]
        while look:
            name = look.pop()
            if name not in found:
                found.add(name)
                look += [each for one in self._tasks[name].trigger.parameters for each in self._producers.get(one, ())]
        return found

    def touched(self, task: str) -> None:
        """Its run, what it has seen, or whether it may start has changed."""
        if task in self._related:
            self._last = None

    def moved(self, parameter: Parameter) -> None:
        if parameter in self._moving:
            self._last = None

    def matter(self, lanes: Iterable[Lane]) -> bool:
        """Whether a plan could change what starts next."""
        if not self._important:
            return False
        most = self._important[0].priority
        waiting = (lane.lowest() for lane in lanes if lane.free and lane.pool.max_parallel is not None)
        return any(run is not None and run.priority < most for run in waiting)

    def plan(self, now: Instant, lanes: Mapping[str, Lane]) -> Plan:
        last = self._last
        if last is None or now >= last.until:
            made = self._plan(now, lanes)
            ends = [each.until for kept in made.reservations.values() for each in kept]
            until = now + 1 if self._timed else min(ends, default=END)
            last = self._last = _Last(made, until)
        return last.plan

    def _plan(self, now: Instant, lanes: Mapping[str, Lane]) -> Plan:
        found = plan(
            now,
            self._facts(),
            [PoolNow(name, lane.pool.max_parallel, lane.pool.max_hold) for name, lane in lanes.items()],
            self._holds,
        )
        # Of runs that are not among the facts too, as long as they live.
        alive = {run.id for run in self._live.values()}
        known = {(hold.consumer, hold.producer_run): hold for hold in (*self._holds, *found.holds)}
        self._holds = [hold for hold in known.values() if hold.producer_run in alive]
        return found

    def _facts(self) -> list[TaskNow]:
        facts: dict[str, TaskNow] = {}
        look = [each.name for each in self._important]
        while look:
            name = look.pop()
            if name in facts:
                continue
            fact = facts[name] = self._fact(name)
            if fact.waits:
                look += [each for parameter in fact.lacking for each in self._producers.get(parameter, ())]
        return [*facts.values(), *self._lowest]

    def _fact(self, name: str) -> TaskNow:
        task, run = self._tasks[name], self._live.get(name)
        live = None if run is None else LiveRun(run.id, not run.queued and not run.away)
        lacking = _NOTHING if run is not None else frozenset(self._lacking(name))
        return TaskNow(
            name,
            task.pool,
            task.priority,
            frozenset(task.produces),
            lacking,
            run is not None or self._startable(name),
            live,
        )
