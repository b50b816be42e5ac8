"""When leaves turn false because what they are measured from moves on: the time, or a reference.

What it promises:

- A base that moves forward wakes the groups in which a leaf turns false by it, and few others; one that moves back,
  comes or goes wakes all.
- `next` is exact. A group may be woken early, never late.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import Generic, Protocol, TypeVar

from triggers.instants import Instant

#: Of entries in a heap that do not count any more, beside as many as count.
_STALE = 64


class Lapsing(Protocol):
    #: The one entry of the heap that counts for it.
    armed: Instant | None

    def lapses(self) -> Instant | None:
        """The first value of the base at which one of its true leaves is false."""


Lapses = TypeVar("Lapses", bound=Lapsing)


class Timers(Generic[Lapses]):
    """Of one base."""

    __slots__ = ("_heap", "groups")

    def __init__(self) -> None:
        self.groups: set[Lapses] = set()
        self._heap: list[tuple[Instant, int, Lapses]] = []

    def add(self, group: Lapses) -> None:
        self.groups.add(group)

    def discard(self, group: Lapses) -> None:
        self.groups.discard(group)
        group.armed = None

    def arm(self, group: Lapses, at: Instant | None) -> None:
        """One that is armed too early stays so: it is looked at again when that time comes."""
        if at is None or (group.armed is not None and group.armed <= at):
            return
        group.armed = at
        heapq.heappush(self._heap, (at, id(group), group))
        if len(self._heap) > 2 * len(self.groups) + _STALE:
            # A set: what was armed again for the same time is there twice.
            self._heap = list({entry for entry in self._heap if entry[2].armed == entry[0]})
            heapq.heapify(self._heap)

    def woken(self, before: Instant | None, value: Instant | None) -> Collection[Lapses]:
        """By the base moving so. They are not armed any more."""
        if before is None or value is None or value < before:
            return tuple(self.groups)
        due = []
        while self._heap and self._heap[0][0] <= value:
            at, _, group = heapq.heappop(self._heap)
            if group.armed == at:
                group.armed = None
                due.append(group)
        return due

    def next(self) -> Instant | None:
        while self._heap:
            at, _, group = self._heap[0]
            lapses = group.lapses() if group.armed == at else None
            if lapses == at:
                return at
            heapq.heappop(self._heap)
            if group.armed == at:
                group.armed = None
                self.arm(group, lapses)
        return None
