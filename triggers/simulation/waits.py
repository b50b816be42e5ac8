"""Who waits for whom in a simulation, as facts for `triggers.holding`: only what a plan can rest on is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from triggers.holding import Hold, LiveRun, Plan, PoolNow, TaskNow, plan
from triggers.instants import Instant
from triggers.simulation.facts import Task
from triggers.simulation.lane import Lane, SimRun
from triggers.verdict import Parameter

_NOTHING: frozenset[Parameter] = frozenset()


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
        #: Those for whom anything could be held: what they wait for is produced here.
        waiting = [
            task
            for task in self._tasks.values()
            if any(each in self._producers for each in task.trigger.parameters) and self._held_by(task)
        ]
        self._important = sorted(waiting, key=lambda task: (-task.priority, task.name))
        self._holds: Sequence[Hold] = ()

    def _held_by(self, task: Task) -> bool:
        return task.priority > min(each.priority for each in self._tasks.values())

    def matter(self, lanes: Iterable[Lane]) -> bool:
        """Whether a plan could change what starts next."""
        return bool(self._important) and self._floor(lanes) is not None

    def _floor(self, lanes: Iterable[Lane]) -> int | None:
        """The lowest priority of what could start, if anything is above it."""
        waiting = [lane.lowest() for lane in lanes if lane.waiting and lane.free and lane.pool.max_parallel is not None]
        priorities = [run.priority for run in waiting if run is not None]
        return min(priorities) if priorities and min(priorities) < self._important[0].priority else None

    def plan(self, now: Instant, lanes: Mapping[str, Lane]) -> Plan:
        found = plan(
            now,
            self._facts(lanes),
            [PoolNow(name, lane.pool.max_parallel, lane.pool.max_hold) for name, lane in lanes.items()],
            self._holds,
        )
        # Of runs that are not among the facts too, as long as they live.
        alive = {run.id for run in self._live.values()}
        known = {(hold.consumer, hold.producer_run): hold for hold in (*self._holds, *found.holds)}
        self._holds = [hold for hold in known.values() if hold.producer_run in alive]
        return found

    def _facts(self, lanes: Mapping[str, Lane]) -> list[TaskNow]:
        floor = self._floor(lanes.values())
        facts: dict[str, TaskNow] = {}
        for lane in lanes.values():
            if lane.waiting and (run := lane.lowest()) is not None:
                facts[run.task] = self._fact(run.task)
        look = [each.name for each in self._important if floor is not None and each.priority > floor]
        while look:
            name = look.pop()
            if name in facts:
                continue
            fact = facts[name] = self._fact(name)
            if fact.waits:
                look += [each for parameter in fact.lacking for each in self._producers.get(parameter, ())]
        return list(facts.values())

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
