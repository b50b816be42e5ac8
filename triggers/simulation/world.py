"""A warehouse on a virtual clock: what happens from one moment at which something changes to the next.

All that happens at one moment is applied first; then the triggers that it touched are looked at, and what waits is
admitted. So the cost follows what happens, and a year without events costs nothing.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from app.errors import BadRequest
from triggers.endings import BACKOFF_MOST
from triggers.holding import Plan
from triggers.instants import Instant, shown, span
from triggers.simulation.conditions import Checked, Conditions
from triggers.simulation.facts import Change, Pool, Task, Warehouse
from triggers.simulation.lane import Lane, SimRun
from triggers.simulation.lengths import Lengths
from triggers.simulation.outcome import Launch, Missed, Outcome
from triggers.simulation.waits import Waits
from triggers.verdict import Parameter, dotted

_BACKOFF_MOST = span(BACKOFF_MOST)


class _Kind(enum.IntEnum):
    END = 0
    BEGIN = 1
    AGAIN = 2
    RESTED = 3
    LOOK = 4


class _State:
    """Of one task."""

    __slots__ = ("failures", "lapses", "opened", "quarantine", "rests_until", "runs", "seen", "task")

    def __init__(self, task: Task, seen: dict[Parameter, Instant]) -> None:
        self.task, self.seen = task, seen
        self.runs = self.failures = 0
        self.rests_until: Instant = 0
        #: The values for which it does not start again.
        self.quarantine: tuple[Instant | None, ...] | None = None
        #: Since when its trigger has held with no run begun.
        self.opened: Instant | None = None
        self.lapses = any(not leaf.needs_seen for leaf in task.trigger.leaves)


_Event: TypeAlias = tuple[Instant, int, _Kind, SimRun | str]


class World:
    def __init__(
        self,
        warehouse: Warehouse,
        lengths: Lengths,
        outcome: Outcome,
        *,
        since: Instant,
        holds: bool = True,
        delivers: bool = True,
        conditions: Conditions | None = None,
    ) -> None:
        self._lengths, self._delivers, self.outcome = lengths, delivers, outcome
        self._slots, self._busy = warehouse.slots, 0
        self._current = dict(warehouse.current)
        self._conditions: Conditions = Checked() if conditions is None else conditions
        self._states: dict[str, _State] = {}
        self._live: dict[str, SimRun] = {}
        self._by_id: dict[int, SimRun] = {}
        self._applied: Plan | None = None
        self._quarantined: set[str] = set()
        self._lanes = self._opened_lanes(warehouse)
        self._events: list[_Event] = []
        self._made, self._events_made = 0, 0
        self._look_at: Instant | None = None
        self._enter(warehouse, since)
        self._now = since
        self._waits = Waits(warehouse.tasks, self._live, self._startable, self._conditions.lacking) if holds else None

    def _opened_lanes(self, warehouse: Warehouse) -> dict[str, Lane]:
        given = {pool.name: pool for pool in warehouse.pools}
        names = sorted({task.pool for task in warehouse.tasks})
        lanes = {name: Lane(given.get(name) or Pool(name)) for name in names}
        self.outcome.pools = {name: lane.figures for name, lane in lanes.items()}
        return lanes

    def _enter(self, warehouse: Warehouse, since: Instant) -> None:
        self._conditions.set_now(since)
        for task in warehouse.tasks:
            if task.name in self._states:
                raise BadRequest(f"the task {task.name!r} is given twice: give each name once")
            state = self._states[task.name] = _State(task, dict(warehouse.seen.get(task.name, {})))
            self._conditions.put(task.name, task.trigger, state.seen)
        # An index keeps values of parameters that a task names, and no others.
        for parameter, value in self._current.items():
            self._conditions.set_current(parameter, value)
        self._ended = set(self._states)

    # The clock

    def run(self, changes: Iterable[Change], until: Instant) -> Iterator[Instant]:
        """Goes on until then, and tells each moment that was worked through."""
        stream = _ordered(changes, self._now)
        change = next(stream, None)
        now: Instant | None = self._now
        while now is not None and now < until:
            self._now = now
            self._conditions.set_now(now)
            while change is not None and change.at <= now:
                self._move(change.parameter, change.value)
                change = next(stream, None)
            while self._events and self._events[0][0] <= now:
                self._happen(heapq.heappop(self._events))
            self._settle()
            self.outcome.steps += 1
            yield now
            now = self._next(change)
        self._finish()

    def _next(self, change: Change | None) -> Instant | None:
        moments = [
            change.at if change is not None else None,
            self._events[0][0] if self._events else None,
            self._conditions.next_timer(),
        ]
        return min((moment for moment in moments if moment is not None), default=None)

    def _at(self, moment: Instant, kind: _Kind, subject: SimRun | str) -> None:
        self._events_made += 1
        heapq.heappush(self._events, (moment, self._events_made, kind, subject))

    def _happen(self, event: _Event) -> None:
        _, _, kind, subject = event
        if isinstance(subject, str):
            if kind is _Kind.RESTED:
                self._ended.add(subject)
                self._touch(subject)
            return
        match kind:
            case _Kind.END:
                self._end(subject)
            case _Kind.BEGIN:
                self._begin(subject)
            case _Kind.AGAIN:
                self._lane(subject).push(subject)
                self._touch(subject.task)
            case _Kind.RESTED | _Kind.LOOK:
                pass

    def _move(self, parameter: Parameter, value: Instant) -> None:
        self._current[parameter] = value
        self._conditions.set_current(parameter, value)
        if self._waits is not None:
            self._waits.moved(parameter)
        # Its trigger held before, and holds still: only this tells that there is something new.
        self._ended |= {name for name in self._quarantined if parameter in self._states[name].task.trigger.parameters}

    def _touch(self, task: str) -> None:
        if self._waits is not None:
            self._waits.touched(task)

    # Triggers

    def _settle(self) -> None:
        """Until nothing more starts at this moment."""
        self._evaluate()
        while self._admit():
            self._evaluate()

    def _evaluate(self) -> None:
        flipped = self._conditions.flipped()
        look, self._ended = flipped | self._ended, set()
        for name in sorted(flipped):
            self._turned(self._states[name])
        for name in sorted(look):
            if name not in self._live:
                self._consider(self._states[name])

    def _turned(self, state: _State) -> None:
        if self._conditions.truth(state.task.name):
            state.opened = self._now
        elif state.opened is not None:
            if state.lapses:
                why = self._standing(state)
                self.outcome.lapsed(Missed(state.task.name, state.opened, self._now, why))
            state.opened = None

    def _standing(self, state: _State) -> str:
        run = self._live.get(state.task.name)
        if run is not None:
            return "waiting" if run.queued else "backing off" if run.away else "running"
        return "quarantined" if state.quarantine is not None else "resting"

    def _startable(self, name: str) -> bool:
        state = self._states[name]
        return state.rests_until <= self._now and state.quarantine is None

    def _consider(self, state: _State) -> None:
        """Starts a run where the trigger holds, and nothing keeps the task from it."""
        task = state.task
        if task.first_run == "baseline":
            self._baseline(state)
        if state.rests_until > self._now or not self._conditions.truth(task.name):
            return
        if state.quarantine is not None:
            if state.quarantine == self._values(task):
                return
            state.quarantine, state.failures = None, 0
            self._quarantined.discard(task.name)
        self._made += 1
        state.runs += 1
        run = self._live[task.name] = SimRun(self._made, task.name, task.priority, self._now, state.runs)
        self._by_id[run.id] = run
        self._lane(run).push(run)
        self._touch(task.name)

    def _baseline(self, state: _State) -> None:
        """T12: what is there at first counts as seen."""
        found = dict(state.seen)
        for leaf in state.task.trigger.leaves:
            name = (leaf.entity, leaf.parameter)
            if leaf.needs_seen and name not in found and (current := self._current.get(name)) is not None:
                found[name] = current
        if found != state.seen:
            state.seen, state.opened = found, None
            self._touch(state.task.name)
            self._conditions.seen(state.task.name, found)

    def _values(self, task: Task) -> tuple[Instant | None, ...]:
        return tuple(self._current.get(name) for name in task.trigger.parameters)

    # Runs

    def _lane(self, run: SimRun) -> Lane:
        return self._lanes[self._states[run.task].task.pool]

    def _admit(self) -> bool:
        """Whether anything that was taken was over at once, so that there is more to look at."""
        lanes = [lane for lane in self._lanes.values() if lane.waiting]
        found = self._planned(lanes) if lanes else None
        over = False
        while (chosen := self._choose(lanes, found)) is not None:
            lane, run = chosen
            allowed, wait = lane.pace(self._now)
            if not allowed:
                self._look(self._now + wait)
                lanes = [each for each in lanes if each is not lane]
                continue
            lane.take(run)
            self._touch(run.task)
            self._busy += 1
            if wait:
                self._at(self._now + wait, _Kind.BEGIN, run)
            else:
                over = not self._begin(run) or over
        return over

    def _planned(self, lanes: list[Lane]) -> Plan | None:
        if self._waits is None or not self._waits.matter(lanes):
            return None
        found = self._waits.plan(self._now, self._lanes)
        if found is not self._applied:
            self._applied = found
            for run_id, priority in found.inherited.items():
                run = self._by_id[run_id]
                self._lane(run).inherit(run, priority)
        return found

    def _choose(self, lanes: list[Lane], found: Plan | None) -> tuple[Lane, SimRun] | None:
        """The run that starts next: the best of its pool."""
        if self._slots is not None and self._busy >= self._slots:
            return None
        chosen = None
        for lane in lanes:
            kept = found.reservations.get(lane.pool.name, ()) if found else ()
            most = lane.most_rank(kept)
            best = None if most is None else lane.best(self._now, kept)
            if best is None or most is None:
                continue
            if best[0] <= most:
                place = (best[:3], (lane, best[3]))
                chosen = place if chosen is None or place[0] < chosen[0] else chosen
            elif kept:
                # Held: until a hold ends, or it has waited for long enough.
                ends = [each.until for each in kept]
                self._look(min(*ends, lane.next_age(best[3], self._now)))
        return None if chosen is None else chosen[1]

    def _look(self, at: Instant) -> None:
        if self._look_at is None or self._look_at <= self._now or at < self._look_at:
            self._look_at = at
            self._at(at, _Kind.LOOK, "")

    def _begin(self, run: SimRun) -> bool:
        """The check that counts (T11). False: the trigger does not hold any more, and the run is over."""
        state = self._states[run.task]
        if state.task.on_lapse == "drop" and not self._conditions.truth(run.task):
            self._leave(run)
            return False
        state.opened = None
        run.window = tuple(
            (name, state.seen.get(name), self._current.get(name)) for name in state.task.trigger.parameters
        )
        if run.started is None:
            run.started = self._now
            figures = self._lane(run).figures
            waited = self._now - run.created
            figures.launches += 1
            figures.waited += waited
            figures.longest_wait = max(figures.longest_wait, waited)
            if state.task.min_interval:
                state.rests_until = self._now + state.task.min_interval
                self._at(state.rests_until, _Kind.RESTED, run.task)
        run.attempts += 1
        figures = self._lane(run).figures
        figures.peak_running = max(figures.peak_running, self._lane(run).running)
        length, fails = self._lengths.attempt(run.task, run.ordinal, run.attempts)
        run.fails = fails
        self._at(self._now + length, _Kind.END, run)
        return True

    def _leave(self, run: SimRun) -> None:
        """It is over: its slot is free, and its task is evaluated anew (T16)."""
        self._touch(run.task)
        self._lane(run).running -= 1
        self._busy -= 1
        del self._live[run.task], self._by_id[run.id]
        self._ended.add(run.task)

    def _end(self, run: SimRun) -> None:
        self._touch(run.task)
        state = self._states[run.task]
        if run.fails:
            self._failed(run, state)
            return
        self._leave(run)
        state.failures = 0
        state.seen = state.seen | {name: current for name, _, current in run.window if current is not None}
        self._conditions.seen(run.task, state.seen)
        self._launched(run, "done")
        if self._delivers:
            self._deliver(run, state.task)

    def _failed(self, run: SimRun, state: _State) -> None:
        """T22"""
        state.failures += 1
        if state.failures >= state.task.max_failures:
            self._leave(run)
            state.quarantine = tuple(current for _, _, current in run.window)
            self._quarantined.add(run.task)
            self._launched(run, "failed")
            return
        self._lane(run).running -= 1
        self._busy -= 1
        run.away = True
        wait = min(_BACKOFF_MOST, state.task.backoff * 2 ** min(state.failures - 1, 16))
        self._at(self._now + max(1, wait), _Kind.AGAIN, run)

    def _deliver(self, run: SimRun, task: Task) -> None:
        """What it made reaches as far as the least of what it was made from."""
        known = [current for _, _, current in run.window if current is not None]
        if not known:
            return
        least = min(known)
        for parameter in task.produces:
            if self._current.get(parameter, least - 1) < least:
                self._move(parameter, least)

    def _launched(self, run: SimRun, outcome: str) -> None:
        ended = None if outcome == "running" else self._now
        pool = self._states[run.task].task.pool
        assert run.started is not None  # noqa: S101 - it began
        self.outcome.launched(
            Launch(run.task, pool, run.created, run.started, ended, outcome, run.attempts, run.window)
        )

    def _finish(self) -> None:
        for run in sorted(self._live.values(), key=lambda run: run.id):
            if run.started is not None:
                self._launched(run, "running")
        self.outcome.quarantined = tuple(sorted(self._quarantined))


def _ordered(changes: Iterable[Change], since: Instant) -> Iterator[Change]:
    last = since
    for change in changes:
        if change.at < last:
            raise BadRequest(
                f"the change of {dotted(change.parameter)} at {shown(change.at)} comes after {shown(last)}: sort the "
                "changes by their moments, from the beginning on"
            )
        last = change.at
        yield change
