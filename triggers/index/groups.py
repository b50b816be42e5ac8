"""Leaves that are measured alike, sorted by key: a move of the measure flips those between the old value and the new.

What it promises:

- The true leaves are those with keys up to `measure`, and nobody has to look at the others.
- `measure` may lag behind a base that moved on; no key lies between it and the real one (`triggers.index.timers`).
- What is added is sorted in when it is next looked at, so many can be added at once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from triggers.chunks import Scale
from triggers.index.keys import NOTHING, NOW, Rest
from triggers.index.timers import Timers
from triggers.instants import END, Instant
from triggers.verdict import Parameter

#: Sorting all is cheaper than sorting in, from that part of them on.
_MANY = 32


class Source:
    """A parameter, or the time: its value, the groups that measure it, and those that are measured from it."""

    __slots__ = ("first", "more", "parameter", "timers", "value")

    def __init__(self, parameter: Parameter, value: Instant | None = None) -> None:
        self.parameter = parameter
        self.value = value
        #: Most sources have one group: a dictionary for each would be a third of the memory.
        self.first: Group | None = None
        self.more: dict[Rest, Group] | None = None
        self.timers: Timers[Group] | None = None

    def group(self, rest: Rest) -> Group | None:
        if self.first is not None and self.first.rest == rest:
            return self.first
        return self.more.get(rest) if self.more else None

    def attach(self, group: Group) -> None:
        if self.first is None:
            self.first = group
        else:
            if self.more is None:
                self.more = {}
            self.more[group.rest] = group
        if group.base is not None:
            if group.base.timers is None:
                group.base.timers = Timers()
            group.base.timers.add(group)

    def detach(self, group: Group) -> None:
        if self.first is group:
            self.first = None
        elif self.more is not None:
            del self.more[group.rest]
        if group.base is not None and group.base.timers is not None:
            group.base.timers.discard(group)

    def measured(self) -> Iterator[Group]:
        if self.first is not None:
            yield self.first
        if self.more is not None:
            yield from self.more.values()

    def named(self) -> Iterator[Group]:
        """All that it has to do with."""
        yield from self.measured()
        if self.timers is not None:
            yield from self.timers.groups

    @property
    def idle(self) -> bool:
        return not (self.first or self.more or (self.timers and self.timers.groups))


class Group:
    __slots__ = ("_sorted", "armed", "base", "keys", "measure", "own", "scale", "slots")

    def __init__(self, own: Source, base: Source | None, scale: Scale | None) -> None:
        self.own, self.base, self.scale = own, base, scale
        #: Beside each other, sorted by both: of a leaf its key, and the slot of its task.
        self.keys = array("q")
        self.slots = array("i")
        self._sorted = 0
        self.armed: Instant | None = None
        self.measure = self.now_measured()

    @property
    def rest(self) -> Rest:
        return (self.base.parameter if self.base else None), self.scale

    def parameters(self) -> Iterator[Parameter]:
        yield self.own.parameter
        if self.base is not None and self.base.parameter is not NOW:
            yield self.base.parameter

    def wanting(self) -> Iterator[Parameter]:
        """What could make a false leaf true: a base that moves on does not, but one that is missing may."""
        yield self.own.parameter
        if self.base is not None and self.base.parameter is not NOW and self.base.value is None:
            yield self.base.parameter

    def now_measured(self) -> int:
        return self.measured(self.own.value, self.base.value if self.base else None)

    def measured(self, own: Instant | None, base: Instant | None) -> int:
        if own is None:
            return NOTHING
        if self.base is None:
            return own
        if base is None:
            return NOTHING
        return own - base if self.scale is None else self.scale.number(own) - self.scale.number(base)

    def add(self, key: int, slot: int) -> None:
        self.keys.append(key)
        self.slots.append(slot)

    def remove(self, key: int, slot: int) -> None:
        self._sort()
        at = self._place(key, slot)
        del self.keys[at], self.slots[at]
        self._sorted -= 1

    def between(self, measure: int) -> Sequence[int]:
        """The slots of what flips if the measure moves there."""
        self._sort()
        one, other = bisect_right(self.keys, self.measure), bisect_right(self.keys, measure)
        return self.slots[min(one, other) : max(one, other)]

    def lapses(self) -> Instant | None:
        self._sort()
        true = bisect_right(self.keys, self.measure)
        return self.lapses_at(self.keys[true - 1]) if true else None

    def lapses_at(self, key: int) -> Instant | None:
        """The first value of the base at which a leaf with that key is false; None: in no time that there is."""
        own = self.own.value
        if own is None:
            return None
        at = own - key + 1 if self.scale is None else self.scale.start(self.scale.number(own) - key + 1)
        return at if at < END else None

    def _sort(self) -> None:
        added = len(self.keys) - self._sorted
        if not added:
            return
        if added * _MANY > len(self.keys):
            leaves = sorted(zip(self.keys, self.slots, strict=True))
            self.keys = array("q", [key for key, _ in leaves])
            self.slots = array("i", [slot for _, slot in leaves])
            self._sorted = len(leaves)
            return
        for _ in range(added):
            key, slot = self.keys.pop(), self.slots.pop()
            at = self._place(key, slot)
            self.keys.insert(at, key)
            self.slots.insert(at, slot)
            self._sorted += 1

    def _place(self, key: int, slot: int) -> int:
        low = bisect_left(self.keys, key, 0, self._sorted)
        return bisect_left(self.slots, slot, low, bisect_right(self.keys, key, low, self._sorted))
