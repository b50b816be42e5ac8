"""The index itself: tasks, each with the places of its leaves in their groups, and how many of them are true."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.errors import NotFound
from triggers.index.groups import Group, Source
from triggers.index.keys import NOW, Latched, fixed_key, rest_of, rule_of, seen_key
from triggers.instants import Instant
from triggers.leaves import CtlTrigger
from triggers.trigger import Any, Trigger
from triggers.verdict import Parameter


class _Place:
    """One leaf of a task. `rule`: what gives its key from last seen, if that is so."""

    __slots__ = ("group", "key", "rule")

    def __init__(self, group: Group, key: int, rule: Latched | None) -> None:
        self.group, self.key, self.rule = group, key, rule

    @property
    def holds(self) -> bool:
        return self.key <= self.group.measure


class _Task:
    """`true` of its leaves are, and it fires when `need` of them are."""

    __slots__ = ("name", "need", "places", "slot", "true")

    def __init__(self, name: str, slot: int) -> None:
        self.name, self.slot = name, slot
        self.places: tuple[_Place, ...] = ()
        self.need, self.true = 1, 0

    @property
    def fires(self) -> bool:
        return self.true >= self.need


class Index:
    """All moments are `Instant`s. Every call leaves it consistent, and `truth` is always that of now."""

    def __init__(self, now: Instant) -> None:
        self._now = Source(NOW, now)
        self._sources: dict[Parameter, Source] = {NOW: self._now}
        self._tasks: dict[str, _Task] = {}
        self._slots: list[_Task | None] = []
        self._free: list[int] = []
        #: An odd number of times since `flipped` was called.
        self._turned: set[str] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, name: object) -> bool:
        return name in self._tasks

    def put(self, name: str, trigger: Trigger, seen: Mapping[Parameter, Instant]) -> frozenset[Parameter]:
        """Add the task, or replace its trigger and last seen.

        Gives the parameters that no task named before: they have no value here until `set_current` tells it."""
        new = frozenset(each for each in trigger.parameters if each not in self._sources)
        task = self._tasks.get(name) or self._enter(name)
        fired, old = task.fires, task.places
        task.places = tuple([self._join(leaf, seen, task.slot) for leaf in trigger.leaves])
        task.need = 1 if isinstance(trigger, Any) else len(task.places)
        task.true = sum(place.holds for place in task.places)
        # Last, so that what both name keeps its value.
        self._leave(task.slot, old)
        if task.fires != fired:
            self._turn(name)
        return new

    def drop(self, name: str) -> None:
        """Nothing, if it is not there."""
        task = self._tasks.pop(name, None)
        if task is None:
            return
        self._leave(task.slot, task.places)
        self._slots[task.slot] = None
        self._free.append(task.slot)
        if task.fires:
            self._turn(name)

    def seen(self, name: str, seen: Mapping[Parameter, Instant]) -> None:
        """Replaces all that the task has last seen: what is left out is unseen."""
        task = self._task(name)
        fired = task.fires
        for place in task.places:
            if place.rule is None:
                continue
            key = seen_key(place.rule, seen.get(place.group.own.parameter))
            if key != place.key:
                task.true -= place.holds
                place.group.remove(place.key, task.slot)
                place.group.add(key, task.slot)
                place.key = key
                task.true += place.holds
        if task.fires != fired:
            self._turn(name)

    def set_current(self, parameter: Parameter, value: Instant | None) -> None:
        """A parameter that no task names is not kept."""
        source = self._sources.get(parameter)
        if source is not None:
            self._move(source, value)

    def set_now(self, now: Instant) -> None:
        """Also back, when the clock was set so."""
        self._move(self._now, now)

    def current(self, parameter: Parameter) -> Instant | None:
        """None also of what no task names."""
        source = self._sources.get(parameter)
        return source.value if source is not None else None

    def next_timer(self) -> Instant | None:
        """The first moment at which a leaf turns false, if nothing but time moves."""
        return self._now.timers.next() if self._now.timers is not None else None

    def truth(self, name: str) -> bool:
        return self._task(name).fires

    def flipped(self) -> set[str]:
        """The tasks whose truth is not what it was at the last call; one that was not there was false."""
        turned, self._turned = self._turned, set()
        return {name for name in turned if name in self._tasks}

    def watchers(self, parameter: Parameter) -> set[str]:
        """The tasks that name it, also as a reference."""
        source = self._sources.get(parameter)
        groups = source.named() if source is not None else ()
        return {self._at(slot).name for group in groups for slot in group.slots}

    def lacking(self, name: str) -> set[Parameter]:
        """What could make the leaves true that are false now."""
        places = self._task(name).places
        return {each for place in places if not place.holds for each in place.group.wanting()}

    def _move(self, source: Source, value: Instant | None) -> None:
        before, source.value = source.value, value
        if value == before:
            return
        for group in source.measured():
            self._follow(group)
        if source.timers is not None:
            for group in source.timers.woken(before, value):
                self._follow(group)

    def _follow(self, group: Group) -> None:
        measure = group.now_measured()
        step = 1 if measure > group.measure else -1
        slots = group.between(measure)
        group.measure = measure
        for slot in slots:
            task = self._at(slot)
            fired = task.fires
            task.true += step
            if task.fires != fired:
                self._turn(task.name)
        if group.base is not None and group.base.timers is not None:
            group.base.timers.arm(group, group.lapses())

    def _enter(self, name: str) -> _Task:
        if self._free:
            task = _Task(name, self._free.pop())
            self._slots[task.slot] = task
        else:
            task = _Task(name, len(self._slots))
            self._slots.append(task)
        self._tasks[name] = task
        return task

    def _join(self, leaf: CtlTrigger, seen: Mapping[Parameter, Instant], slot: int) -> _Place:
        group = self._group(leaf)
        rule = rule_of(leaf)
        key = fixed_key(leaf) if rule is None else seen_key(rule, seen.get(group.own.parameter))
        # It may lag behind its base, and the new key might lie between.
        group.measure = group.now_measured()
        group.add(key, slot)
        place = _Place(group, key, rule)
        if place.holds and group.base is not None and group.base.timers is not None:
            group.base.timers.arm(group, group.lapses_at(key))
        return place

    def _leave(self, slot: int, places: Iterable[_Place]) -> None:
        for place in places:
            group = place.group
            group.remove(place.key, slot)
            if not group.keys:
                group.own.detach(group)
            for parameter in group.parameters():
                if parameter in self._sources and self._sources[parameter].idle:
                    del self._sources[parameter]

    def _group(self, leaf: CtlTrigger) -> Group:
        own, rest = self._source((leaf.entity, leaf.parameter)), rest_of(leaf)
        group = own.group(rest)
        if group is None:
            base, scale = rest
            group = Group(own, None if base is None else self._source(base), scale)
            own.attach(group)
        return group

    def _source(self, parameter: Parameter) -> Source:
        source = self._sources.get(parameter)
        if source is None:
            source = self._sources[parameter] = Source(parameter)
        return source

    def _task(self, name: str) -> _Task:
        task = self._tasks.get(name)
        if task is None:
            raise NotFound(f"{name!r} is not in the index: put it there first")
        return task

    def _at(self, slot: int) -> _Task:
        task = self._slots[slot]
        assert task is not None  # noqa: S101 - a leaf leaves its group before its task leaves its slot
        return task

    def _turn(self, name: str) -> None:
        if name in self._turned:
            self._turned.remove(name)
        else:
            self._turned.add(name)
