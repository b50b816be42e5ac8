"""What the service keeps in mind of the tasks: an index of their conditions, and what else says when to look again.

Derived from Postgres: whole at a takeover, task by task when the stream of events names one. It arms nothing by an edge
that it saw: a task is looked at again under lock before anything is started.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.arrays import Array
from triggers.ctl import Parameter
from triggers.index import Index
from triggers.instants import Instant
from triggers.model import Ctl, CtlSeen, ReactiveLeaf, ReactiveTask
from triggers.polling import micros
from triggers.service.cursor import Changes
from triggers.starting import readable

PAGE = 5000
#: One for all tasks of which nothing is.
NONE: frozenset[Parameter] = frozenset()


@dataclass(slots=True)
class Task:
    """What the index does not know."""

    pool: str
    priority: int
    produces: frozenset[Parameter]
    parameters: tuple[Parameter, ...]
    #: Its trigger may open and close again without a change of what it has seen (T23).
    passing: bool
    #: Neither paused nor quarantined.
    free: bool
    #: Whose first value it takes for seen (T12), and has not seen yet.
    unseen: frozenset[Parameter]
    start_after: Instant | None


@dataclass
class Memory:
    now: Instant
    index: Index = field(init=False)
    tasks: dict[str, Task] = field(default_factory=dict)
    #: Quarantined tasks by what may release them.
    quarantined: defaultdict[Parameter, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: The tasks of which a parameter is unseen; and those of them for which it is there.
    unseen: defaultdict[Parameter, set[str]] = field(default_factory=lambda: defaultdict(set))
    first: set[str] = field(default_factory=set)
    #: Tasks that rest until a moment.
    resting: list[tuple[Instant, str]] = field(default_factory=list)
    #: Tasks that are to be decided, whatever the index says.
    pending: set[str] = field(default_factory=set)
    #: Those that somebody else was changing when they were to be decided.
    busy: set[str] = field(default_factory=set)
    #: Since when a passing trigger holds that has not been used.
    opened: dict[str, Instant] = field(default_factory=dict)
    #: Windows that have closed unused, as far as is known here.
    closed: dict[str, Instant] = field(default_factory=dict)
    #: Of the tasks of each pool.
    priorities: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    #: The tasks that say what they deliver.
    producing: set[str] = field(default_factory=set)
    #: Those of which a run was made when they were last decided: what holds of them from the start is used already.
    used: set[str] = field(default_factory=set)
    #: Those that only a newer release can read.
    unreadable: set[str] = field(default_factory=set)
    #: Slots are kept, or were when this was read.
    holding: bool = True

    def __post_init__(self) -> None:
        self.index = Index(self.now)

    def apply(self, changes: Changes) -> None:
        self.now = changes.now
        self.index.set_now(changes.now)
        for parameter, value in changes.parameters.items():
            self.index.set_current(parameter, value)
            self.pending |= self.quarantined.get(parameter, set())
            self.first |= self.unseen.get(parameter, set())

    def to_decide(self) -> set[str]:
        """The tasks whose outcome may have changed; remembers since when windows are open."""
        for name in self.index.flipped() & self.tasks.keys():
            self.pending.add(name)
            if not self.tasks[name].passing:
                continue
            if self.index.truth(name):
                if name not in self.used:
                    self.opened.setdefault(name, self.now)
            elif (since := self.opened.pop(name, None)) is not None:
                self.closed[name] = since
        self.used.clear()
        while self.resting and self.resting[0][0] <= self.now:
            _, name = heapq.heappop(self.resting)
            if name in self.index and self.index.truth(name):
                self.pending.add(name)
        return self.pending

    @property
    def next_timer(self) -> Instant | None:
        timers = [each for each in (self.index.next_timer(), self.resting[0][0] if self.resting else None) if each]
        return min(timers, default=None)

    def load(self, session: Session, names: Collection[str] | None = None) -> None:
        """All tasks, or those named again; those that are gone are forgotten."""
        if names is not None and not names:
            return
        known = set()
        # A cursor of the server costs two more round trips, and is for all of them.
        stream = {"yield_per": PAGE} if names is None else {}
        # By the connection: the session would pass every row through its own loading.
        connection = session.connection()
        rows = connection.execute(_tasks(names), execution_options=stream)
        for name, of_task in groupby(rows, attrgetter("name")):
            known.add(name)
            first = next(of_task)
            seen = {(row.entity, row.parameter): row.value for row in chain([first], of_task) if row.entity is not None}
            self._put(first, seen)
        if names is not None:
            for name in set(names) - known:
                self._forget(name)
            # Whatever has happened to them, it may be time for them to start.
            self.pending |= known & self.tasks.keys()
        else:
            self.used = set(self.pending)
        for entity, parameter, value in connection.execute(_values(names), execution_options=stream):
            self.index.set_current((entity, parameter), value)
        for name in known & self.tasks.keys():
            if any(self.index.current(each) is not None for each in self.tasks[name].unseen):
                self.first.add(name)

    def _put(self, row: Any, seen: dict[Parameter, Instant]) -> None:
        trigger = readable(row.name, row.trigger)
        if trigger is None:
            self._forget(row.name)
            self.unreadable.add(row.name)
            return
        self._leave(row.name)
        self.unreadable.discard(row.name)
        parameters = trigger.parameters
        free = not row.paused and not row.quarantined
        produces = frozenset((a, b) for a, b in row.produces)
        needed = [(leaf.entity, leaf.parameter) for leaf in trigger.leaves if leaf.needs_seen]
        unseen = frozenset(needed).difference(seen) if row.first_run == "baseline" else NONE
        self.tasks[row.name] = Task(
            row.pool,
            row.priority,
            produces,
            parameters,
            len(needed) < len(trigger.leaves),
            free,
            unseen,
            row.start_after,
        )
        for parameter in unseen:
            self.unseen[parameter].add(row.name)
        self.priorities[row.pool][row.priority] += 1
        if produces:
            self.producing.add(row.name)
        self.index.put(row.name, trigger, seen)
        if row.start_after is not None and row.start_after > self.now:
            heapq.heappush(self.resting, (row.start_after, row.name))
        if row.fired:
            # What was stored may be out of date.
            self.pending.add(row.name)
        if row.quarantined:
            for parameter in parameters:
                self.quarantined[parameter].add(row.name)

    def _leave(self, name: str) -> None:
        if (task := self.tasks.get(name)) is None:
            return
        self.priorities[task.pool] -= Counter([task.priority])
        self.producing.discard(name)
        for parameter in () if task.free else task.parameters:
            self.quarantined[parameter].discard(name)
        for parameter in task.unseen:
            self.unseen[parameter].discard(name)

    def _forget(self, name: str) -> None:
        self._leave(name)
        self.index.drop(name)
        self.tasks.pop(name, None)
        self.opened.pop(name, None)
        self.first.discard(name)
        self.pending.discard(name)
        self.busy.discard(name)
        self.unreadable.discard(name)


def _named(column: Any, names: Collection[str] | None) -> Any:
    return sa.true() if names is None else column == sa.any_(sa.cast(sorted(names), Array(sa.Text)))


def _tasks(names: Collection[str] | None) -> Any:
    """A row for each value that a task has seen, those of one task together."""
    task = ReactiveTask
    return (
        sa.select(
            task.name,
            task.trigger,
            task.pool,
            task.priority,
            task.produces,
            task.paused,
            task.fired,
            task.first_run,
            task.quarantined_at.is_not(None).label("quarantined"),
            micros(task.start_after).label("start_after"),
            CtlSeen.entity,
            CtlSeen.parameter,
            micros(CtlSeen.value).label("value"),
        )
        .outerjoin(CtlSeen, CtlSeen.task == task.name)
        .where(task.removed_at.is_(None), _named(task.name, names))
        .order_by(task.id)
    )


def _values(names: Collection[str] | None) -> Any:
    """The current values of what these tasks name."""
    leaf = ReactiveLeaf
    named = sa.or_(
        sa.and_(leaf.entity == Ctl.entity, leaf.parameter == Ctl.parameter),
        sa.and_(leaf.ref_entity == Ctl.entity, leaf.ref_parameter == Ctl.parameter),
    )
    values = sa.select(Ctl.entity, Ctl.parameter, micros(Ctl.value))
    if names is None:
        return values
    of_tasks = sa.select(leaf.task_id).join(ReactiveTask, ReactiveTask.id == leaf.task_id)
    mine = leaf.task_id.in_(of_tasks.where(_named(ReactiveTask.name, names)))
    return values.join(leaf, named).where(mine).distinct()
