"""Which triggers hold just now: checked again where a value that they name has moved, or their time is over."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Protocol

from triggers.instants import Instant
from triggers.trigger import Any, Trigger
from triggers.verdict import Parameter

#: The kinds that time alone can make false.
TIMED = ("delay", "chunk_delay")


class Conditions(Protocol):
    """What a simulation needs of an index of triggers."""

    def put(self, name: str, trigger: Trigger, seen: Mapping[Parameter, Instant]) -> object: ...
    def seen(self, name: str, seen: Mapping[Parameter, Instant]) -> None: ...
    def set_current(self, parameter: Parameter, value: Instant) -> None: ...
    def set_now(self, now: Instant) -> None: ...
    def next_timer(self) -> Instant | None: ...
    def truth(self, name: str) -> bool: ...
    def flipped(self) -> set[str]: ...
    def lacking(self, name: str) -> set[Parameter]: ...


class _Watched:
    __slots__ = ("deciding", "holding", "lapsing", "leaves", "name", "seen", "trigger")

    def __init__(self, name: str, trigger: Trigger, seen: Mapping[Parameter, Instant]) -> None:
        self.name, self.trigger, self.seen, self.holding = name, trigger, seen, False
        #: One leaf that comes to this decides.
        self.deciding = isinstance(trigger, Any)
        self.leaves = [(leaf.holds, (leaf.entity, leaf.parameter), leaf.ref) for leaf in trigger.leaves]
        self.lapsing = [leaf for leaf in trigger.leaves if leaf.kind in TIMED]


class Checked:
    """Every trigger that names a parameter is checked when the parameter moves. Time goes forward only."""

    def __init__(self) -> None:
        self._now: Instant = 0
        self._current: dict[Parameter, Instant] = {}
        self._tasks: dict[str, _Watched] = {}
        self._watchers: dict[Parameter, list[_Watched]] = {}
        self._flipped: set[str] = set()
        self._timers: list[tuple[Instant, str]] = []

    def put(self, name: str, trigger: Trigger, seen: Mapping[Parameter, Instant]) -> None:
        task = self._tasks[name] = _Watched(name, trigger, seen)
        for parameter in trigger.parameters:
            self._watchers.setdefault(parameter, []).append(task)
        self._check(task)

    def seen(self, name: str, seen: Mapping[Parameter, Instant]) -> None:
        task = self._tasks[name]
        task.seen = seen
        self._check(task)

    def set_current(self, parameter: Parameter, value: Instant) -> None:
        self._current[parameter] = value
        for task in self._watchers.get(parameter, ()):
            self._check(task)

    def set_now(self, now: Instant) -> None:
        self._now = now
        while self._timers and self._timers[0][0] <= now:
            self._check(self._tasks[heapq.heappop(self._timers)[1]])

    def next_timer(self) -> Instant | None:
        return self._timers[0][0] if self._timers else None

    def truth(self, name: str) -> bool:
        return self._tasks[name].holding

    def flipped(self) -> set[str]:
        found, self._flipped = self._flipped, set()
        return found

    def lacking(self, name: str) -> set[Parameter]:
        task = self._tasks[name]
        found: set[Parameter] = set()
        if task.holding:
            return found
        for holds, own, ref in task.leaves:
            current = self._current
            if not holds(self._now, current.get(own), current.get(ref) if ref else None, task.seen.get(own)):
                found.add(own)
                if ref is not None and current.get(ref) is None:
                    found.add(ref)
        return found

    def _check(self, task: _Watched) -> None:
        holding = self._holds(task)
        if task.lapsing and holding:
            self._set_timer(task)
        if holding is not task.holding:
            task.holding = holding
            # There and back is no change.
            self._flipped ^= {task.name}

    def _holds(self, task: _Watched) -> bool:
        now, current, seen, deciding = self._now, self._current, task.seen, task.deciding
        for holds, own, ref in task.leaves:
            if holds(now, current.get(own), None if ref is None else current.get(ref), seen.get(own)) is deciding:
                return deciding
        return not deciding

    def _set_timer(self, task: _Watched) -> None:
        for leaf in task.lapsing:
            current = self._current.get((leaf.entity, leaf.parameter))
            ends = None if current is None else leaf.expires_at(self._now, current)
            if ends is not None and ends > self._now:
                heapq.heappush(self._timers, (ends, task.name))
