"""What is wrong with a process, and why it stands: facts in, findings out. Pure.

The facts are of one moment. What they say is looked at again, under lock, before anything is repaired (R7).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from processes.states import DecisionState, ProcessState, TaskState
from recovery.findings import Case, Finding
from recovery.queues import DecisionFacts, Surroundings, why

#: How the error of a process begins that has lost a part of itself, and of one that took too long.
INCONSISTENT, TIMEOUT = "inconsistent", "ProcessTimeout"
_FIRST = 1


@dataclass(frozen=True)
class TaskFacts:
    """Of a task that has not finished."""

    number: int
    actor: str
    state: TaskState
    pending: int = 0
    #: The edges to it: of what it waits for, how many there are, and how many sources have not finished.
    sources: int = 0
    unfinished_sources: int = 0
    #: Values that it uses, without an edge.
    without_edge: tuple[int, ...] = ()
    #: Whose value it has, how that task stands (None: it is not there), and whether an edge says the same.
    value_of: int | None = None
    value_state: TaskState | None = None
    value_edge: int | None = None
    #: It holds a value of its own.
    valued: bool = False
    #: It is listed as broken.
    told: bool = False
    decision: DecisionFacts | None = None

    @property
    def open(self) -> bool:
        return self.decision is not None and self.decision.open

    @property
    def decided(self) -> bool:
        """It knows what has come out, though it stands as if it did not."""
        waits = self.state in (TaskState.READY, TaskState.PENDING)
        made = self.decision is not None and not self.decision.open
        return waits and made and (self.valued or self.value_of is not None)


@dataclass(frozen=True)
class GraphFacts:
    tasks: int
    unfinished: int
    broken: int
    #: Recovery will look at it one day.
    watched: bool = True


@dataclass(frozen=True)
class Counted:
    """What there is of tasks."""

    rows: int = 0
    highest: int = 0
    unfinished: int = 0
    broken: int = 0


@dataclass(frozen=True)
class ProcessFacts:
    id: int
    #: None: the process is gone.
    state: ProcessState | None
    error: str | None = None
    begun: bool = True
    ended: bool = False
    #: Its `recovery_time`, and the end of its `process_timeout`.
    until: datetime | None = None
    deadline_at: datetime | None = None
    restarts_when_inconsistent: bool = False
    graph: GraphFacts | None = None
    counted: Counted = Counted()
    #: Those that have not finished, by their numbers.
    tasks: tuple[TaskFacts, ...] = ()
    #: Numbers: of tasks that other rows name, and that are not there; of these, which had decided; of tasks that have
    #: finished and have no value; of those that have, or are gone, and whose decision is open; of tasks that are listed
    #: as broken, and are not there as such.
    lost: tuple[int, ...] = ()
    lost_decided: tuple[int, ...] = ()
    valueless: tuple[int, ...] = ()
    open: tuple[int, ...] = ()
    told_in_vain: tuple[int, ...] = ()

    @property
    def declared(self) -> bool:
        """It is known to have lost a part."""
        return self.state is ProcessState.BROKEN and (self.error or "").startswith(INCONSISTENT)


def diagnose(process: ProcessFacts, around: Surroundings) -> tuple[Finding, ...]:
    """By case, each once; of diagnoses once for each queue."""
    found: dict[tuple[Case, str | None], set[int]] = defaultdict(set)
    for case, number, queue in _found(process, around):
        found[case, queue].update(() if number is None else (number,))
    return tuple(sorted((Finding(case, tuple(sorted(of)), queue) for (case, queue), of in found.items()), key=_key))


def _key(finding: Finding) -> tuple[str, str]:
    return finding.case, finding.queue or ""


_Found = Iterator[tuple[Case, int | None, str | None]]


def _found(process: ProcessFacts, around: Surroundings) -> _Found:
    match process.state:
        case None:
            if process.graph is not None or process.counted.rows or process.lost:
                yield Case.PROCESS_LOST, None, None
            return
        case ProcessState.REGISTERED:
            overdue = process.until is None or process.until <= around.now
            yield (Case.NEVER_BEGUN if overdue else Case.NOT_YET_BEGUN), None, None
        case ProcessState.ABORTED:
            yield from _aborted(process)
        case ProcessState.FINISHED:
            yield from _goes_on(process, around) if process.counted.unfinished else _finished(process)
        case ProcessState.ACTIVE | ProcessState.BROKEN:
            yield from _goes_on(process, around)
        case _:
            assert_never(process.state)
    if process.ended != (process.state in (ProcessState.FINISHED, ProcessState.ABORTED)):
        yield Case.WRONG_END, None, None


def _finished(process: ProcessFacts) -> _Found:
    if process.graph is None:
        yield Case.GRAPH_LOST, None, None
    yield from _over(process)
    yield from _counts(process)


def _aborted(process: ProcessFacts) -> _Found:
    yield from _over(process)
    for task in process.tasks:
        if task.state is not TaskState.ABORTED:
            yield Case.NOT_ABORTED, task.number, None
        if task.told:
            yield Case.TOLD_IN_VAIN, task.number, None


def _over(process: ProcessFacts) -> _Found:
    """Of one that has ended: nobody does anything for it, and nobody looks at it."""
    left = [task.number for task in process.tasks if task.open]
    for number in (*process.open, *left):
        yield Case.OPEN_DECISION, number, None
    for number in process.told_in_vain:
        yield Case.TOLD_IN_VAIN, number, None
    if process.until is not None or (process.graph is not None and process.graph.watched):
        yield Case.WRONG_CLOCK, None, None


def _goes_on(process: ProcessFacts, around: Surroundings) -> _Found:
    graph, counted = process.graph, process.counted
    if not counted.rows:
        # R4 (7): as long as nothing has come of it.
        never = graph is not None and graph.tasks <= 1 and set(process.lost) <= {_FIRST} and not process.lost_decided
        yield (Case.NO_START_TASK if never else Case.TASK_LOST), _FIRST, None
        return
    yield from _lost(process)
    if graph is None:
        yield Case.GRAPH_LOST, None, None
    settled = not process.lost and not process.valueless
    undecided = not any(task.decided for task in process.tasks)
    for task in process.tasks:
        for case, number, queue in _task(task, around):
            if case is Case.TOO_EARLY and not undecided:
                # What it waits for has finished, and does not know.
                continue
            settled = settled and case not in _MOVING
            yield case, number, queue
    for number in process.open:
        if number not in process.lost or process.declared:
            yield Case.OPEN_DECISION, number, None
    for number in process.told_in_vain:
        yield Case.TOLD_IN_VAIN, number, None
    if settled:
        yield from _counts(process)
        yield from _state(process, around)
    yield from _clocks(process, around)


#: What is put right changes how many tasks have finished: only then is it to be judged what that makes of the process.
_MOVING = (Case.DECIDED_NOT_APPLIED, Case.NOT_ADVANCED, Case.WAITS_FOR_NOTHING)


def _lost(process: ProcessFacts) -> _Found:
    """R3: what no other row says."""
    for number in process.lost:
        yield Case.TASK_LOST, number, None
    for number in process.valueless:
        yield Case.VALUE_LOST, number, None


def _counts(process: ProcessFacts) -> _Found:
    graph, counted = process.graph, process.counted
    if graph is not None and (
        graph.tasks < counted.highest or (graph.unfinished, graph.broken) != (counted.unfinished, counted.broken)
    ):
        yield Case.WRONG_COUNTS, None, None


def _state(process: ProcessFacts, around: Surroundings) -> _Found:
    """R5, and what the state of a process says of its tasks."""
    broken, state = process.counted.broken, process.state
    late = process.deadline_at is not None and process.deadline_at <= around.now
    if not process.counted.unfinished:
        yield Case.ALL_DONE, None, None
    elif state is ProcessState.FINISHED:
        yield Case.ENDED_TOO_EARLY, None, None
    elif state is ProcessState.ACTIVE and broken:
        yield Case.NOT_BROKEN, None, None
    elif late and process.until is not None and process.until <= around.now:
        yield Case.OVER_TIME, None, None
    elif state is ProcessState.BROKEN and not (broken or late or (process.error or "").startswith(_DECLARED)):
        yield Case.BROKEN_FOR_NOTHING, None, None


_DECLARED = (INCONSISTENT, TIMEOUT)


def _clocks(process: ProcessFacts, around: Surroundings) -> _Found:
    """What is to be looked at, has a time at which it is."""
    until, deadline = process.until, process.deadline_at
    unwatched = process.graph is not None and not process.graph.watched
    timeless = process.state is ProcessState.ACTIVE and until is None and deadline is not None
    late = deadline is not None and deadline <= around.now
    too_soon = until is not None and until <= around.now and (not late or process.declared)
    goes_on = process.counted.unfinished and process.state is not ProcessState.FINISHED
    if goes_on and (unwatched or timeless or too_soon):
        yield Case.WRONG_CLOCK, None, None


def _task(task: TaskFacts, around: Surroundings) -> _Found:
    case = _wrong(task)
    if case is not None:
        yield case, task.number, None
        return
    if task.told != (task.state is TaskState.BROKEN):
        yield (Case.TOLD_IN_VAIN if task.told else Case.NOT_TOLD), task.number, None
    if task.open and task.state is not TaskState.READY:
        yield Case.OPEN_DECISION, task.number, None
    match task.state:
        case TaskState.READY if task.decision is not None:
            yield from _queued(task, task.decision, around)
        case TaskState.BROKEN:
            yield Case.TASK_BROKEN, task.number, None
        case _:
            yield Case.WAITS, task.number, None


def _wrong(task: TaskFacts) -> Case | None:
    """What its place in the graph has against it."""
    match task.state:
        case TaskState.FOLLOWS:
            return _follows(task)
        case TaskState.FINISHED | TaskState.BROKEN:
            return None
        case TaskState.ABORTED:
            return Case.ENDED_TOO_EARLY
        case TaskState.PENDING | TaskState.READY:
            if task.decided:
                return Case.DECIDED_NOT_APPLIED
            if task.without_edge:
                return Case.EDGE_LOST
            if task.pending > task.sources:
                return Case.WAITS_FOR_NOTHING
            return _waits(task)
        case _:
            assert_never(task.state)


def _waits(task: TaskFacts) -> Case | None:
    left = task.unfinished_sources
    if task.pending > left or (task.state is TaskState.PENDING and not left):
        return Case.NOT_ADVANCED
    if task.pending < left or (left and task.state is TaskState.READY):
        return Case.TOO_EARLY
    return Case.NOT_QUEUED if task.state is TaskState.READY and not task.open else None


def _follows(task: TaskFacts) -> Case | None:
    if task.value_of is None:
        return Case.WAITS_FOR_NOTHING if task.value_edge is None else Case.EDGE_LOST
    if task.value_state is TaskState.FINISHED:
        return Case.NOT_ADVANCED
    return None if task.value_edge == task.value_of else Case.EDGE_LOST


def _queued(task: TaskFacts, decision: DecisionFacts, around: Surroundings) -> _Found:
    in_work = decision.state is DecisionState.WORK
    if in_work and (not decision.held or decision.until is None):
        yield Case.UNWATCHED_WORK, task.number, None
    elif not in_work and (not decision.placed or decision.ready is None or decision.held or decision.untimed):
        yield Case.NOT_CLAIMABLE, task.number, None
    else:
        yield why(decision, around), task.number, decision.queue
