"""The graph of a process, and what a decision does to it. Pure.

- A task is ready when nothing that it waits for is unfinished, and not before.
- A decider may decide that its value is that of another task: it then *follows* that task, and whoever waits for the
  decider goes on when that task finishes; at once if it has finished already.
- A task finishes once. The process has finished when every task has.
- A broken task breaks none of the others: what waits for it waits, the rest goes on, and it may still finish.

`Graph` is the part of the graph that a decision can touch; `apply` changes it, and says what is to be written.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from app.errors import BadRequest
from processes.flow import Planned
from processes.states import TaskState


@dataclass(slots=True)
class Node:
    state: TaskState
    #: How many of the tasks that it waits for have not finished.
    pending: int = 0
    #: Of one that follows, the task that it follows; of one that has finished, where the value is, if not its own.
    value_of: int | None = None


class Arrow(NamedTuple):
    """`target` waits for `source`; `value`: its value is that of the source."""

    source: int
    target: int
    value: bool


@dataclass
class Graph:
    #: The highest number of a task; how many have not finished, and how many of these are broken.
    tasks: int = 0
    unfinished: int = 0
    broken: int = 0
    nodes: dict[int, Node] = field(default_factory=dict)
    #: By source.
    arrows: dict[int, list[Arrow]] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return self.unfinished == 0


@dataclass(frozen=True)
class Decided:
    """A good end: what the decider asks for, and whose value is its own; `value_of` None: one of its own.

    Numbers are those of tasks if positive; `-i` is the planned call `i`, counted from 0."""

    planned: Sequence[Planned] = ()
    value_of: int | None = None


@dataclass
class Step:
    """What a decision changed."""

    #: The numbers of the planned calls, in their order.
    created: list[int] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    #: May be handed out now.
    ready: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    #: Wait for fewer tasks than before, or follow another one.
    changed: set[int] = field(default_factory=set)


class Touched(enum.Enum):
    """What a decision can touch, or has to be looked at for it, beside its task and those that it names."""

    #: Its task will follow one that is only asked for now, and nothing else comes of that. A loop of deciders has more
    #: followers with each step, which must not be read each time.
    NOTHING = enum.auto()
    #: What waits for its task, or for one that follows it, and so on.
    FOLLOWERS = enum.auto()
    #: All that waits for it, and for that, and so on: there may be a circle.
    EVERYTHING = enum.auto()


def touched(decided: Decided) -> Touched:
    if decided.value_of is None:
        return Touched.FOLLOWERS
    return Touched.EVERYTHING if named(decided.planned, decided.value_of) else Touched.NOTHING


def named(planned: Iterable[Planned], value_of: int | None) -> set[int]:
    """The tasks that a decision names and does not ask for itself."""
    found = {number for call in planned for number in call.waits_for if number > 0}
    return found | ({value_of} if value_of is not None and value_of > 0 else set())


def apply(graph: Graph, number: int, decided: Decided) -> Step:
    """The task has decided."""
    first = graph.tasks + 1
    source = None if decided.value_of is None else numbered(decided.value_of, first)
    if source is not None:
        _refuse_circle(graph, number, source, decided.planned, first)
    step = Step()
    node = graph.nodes[number]
    if node.state is TaskState.BROKEN:
        graph.broken -= 1
    _create(graph, step, decided.planned, first)
    if source is None:
        _finish(graph, step, number, None)
        return step
    of = graph.nodes[source]
    # Also where it has finished: should it be done again one day, this task has the new value.
    _connect(graph, step, Arrow(source, number, value=True))
    if of.state is TaskState.FINISHED:
        _finish(graph, step, number, of.value_of or source)
        return step
    node.state, node.value_of = TaskState.FOLLOWS, source
    step.changed.add(number)
    return step


def numbered(reference: int, first: int) -> int:
    """The number of a task that was named by its number, or as a planned call of which the first gets this number."""
    return reference if reference > 0 else first - reference


def _create(graph: Graph, step: Step, planned: Iterable[Planned], first: int) -> None:
    for call in planned:
        graph.tasks += 1
        number = graph.tasks
        sources = [numbered(each, first) for each in call.waits_for]
        pending = 0
        for source in sources:
            if graph.nodes[source].state is not TaskState.FINISHED:
                pending += 1
            _connect(graph, step, Arrow(source, number, value=False))
        graph.nodes[number] = Node(TaskState.PENDING if pending else TaskState.READY, pending)
        graph.unfinished += 1
        step.created.append(number)
        if not pending:
            step.ready.append(number)


def _connect(graph: Graph, step: Step, arrow: Arrow) -> None:
    graph.arrows.setdefault(arrow.source, []).append(arrow)
    step.arrows.append(arrow)


def _finish(graph: Graph, step: Step, number: int, value_of: int | None) -> None:
    """It, what follows it, and so on."""
    ending = [(number, value_of)]
    while ending:
        each, origin = ending.pop()
        node = graph.nodes[each]
        node.state, node.value_of = TaskState.FINISHED, origin
        graph.unfinished -= 1
        step.finished.append(each)
        step.changed.discard(each)
        for arrow in graph.arrows.get(each, ()):
            target = graph.nodes[arrow.target]
            if arrow.value:
                ending.append((arrow.target, origin or each))
            else:
                target.pending -= 1
                step.changed.add(arrow.target)
                if not target.pending and target.state is TaskState.PENDING:
                    target.state = TaskState.READY
                    step.ready.append(arrow.target)


def _refuse_circle(graph: Graph, number: int, source: int, planned: Sequence[Planned], first: int) -> None:
    """What is to be followed must not wait for the follower."""
    more: dict[int, list[int]] = {}
    for i, call in enumerate(planned):
        for each in call.waits_for:
            more.setdefault(numbered(each, first), []).append(first + i)
    seen, left = {number}, [number]
    while left:
        each = left.pop()
        if each == source:
            raise BadRequest(
                f"task {number} cannot have the value of task {source}, which waits for it: neither would ever end"
            )
        targets = {arrow.target for arrow in graph.arrows.get(each, ())}.union(more.get(each, ())) - seen
        seen |= targets
        left += targets


def broken(graph: Graph, number: int) -> None:
    """The task has failed for good."""
    node = graph.nodes[number]
    if node.state is not TaskState.BROKEN:
        node.state = TaskState.BROKEN
        graph.broken += 1
