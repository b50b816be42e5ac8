"""What is found of a process, case by case; and that a sound one has nothing but a reason to stand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from processes.states import DecisionState, ProcessState, TaskState
from recovery.diagnose import Counted, GraphFacts, ProcessFacts, TaskFacts, diagnose
from recovery.findings import WORDS, Case, Finding, Verdict, verdict
from recovery.queues import DecisionFacts, QueueFacts, Surroundings

NOW = datetime(2030, 1, 1, tzinfo=UTC)
AGO, SOON, HOUR = NOW - timedelta(minutes=5), NOW + timedelta(minutes=5), timedelta(hours=1)
QUEUE = "actor.toil"
AROUND = Surroundings(NOW, NOW - HOUR, {QUEUE: QueueFacts(slots=1, polled_at=NOW, reached=AGO)})

QUEUED = DecisionFacts(DecisionState.QUEUED, QUEUE, placed=True, ready=AGO)
WORK = DecisionFacts(DecisionState.WORK, QUEUE, placed=True, ready=AGO, held=True, until=SOON)
MADE = DecisionFacts(DecisionState.FINISH, QUEUE, placed=True, ready=AGO)
READY = TaskFacts(2, "toil", TaskState.READY, decision=QUEUED)
PENDING = TaskFacts(3, "toil", TaskState.PENDING, 1, sources=1, unfinished_sources=1)
BROKEN = TaskFacts(4, "toil", TaskState.BROKEN, told=True, decision=MADE)
FOLLOWS = TaskFacts(
    5, "toil", TaskState.FOLLOWS, value_of=3, value_edge=3, value_state=TaskState.PENDING, decision=MADE
)


def process(*tasks: TaskFacts, **words: Any) -> ProcessFacts:
    """One that goes on, with these tasks and a first one that has finished."""
    broken = sum(task.state is TaskState.BROKEN for task in tasks)
    found = ProcessFacts(
        17,
        ProcessState.BROKEN if broken else ProcessState.ACTIVE,
        graph=GraphFacts(5, len(tasks), broken),
        counted=Counted(len(tasks) + 1, 5, len(tasks), broken),
        tasks=tasks,
    )
    return replace(found, **words)


def ended(state: ProcessState, **words: Any) -> ProcessFacts:
    graph = GraphFacts(1, 0, 0, watched=False)
    return replace(ProcessFacts(17, state, ended=True, graph=graph, counted=Counted(1, 1)), **words)


def cases(facts: ProcessFacts, around: Surroundings = AROUND) -> dict[Case, tuple[int, ...]]:
    return {each.case: each.tasks for each in diagnose(facts, around)}


def registered(until: datetime | None) -> ProcessFacts:
    return ProcessFacts(17, ProcessState.REGISTERED, begun=False, until=until)


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        (process(READY), {Case.BEHIND: (2,)}),
        (process(replace(READY, decision=WORK)), {Case.IN_WORK: (2,)}),
        (process(replace(READY, decision=replace(WORK, until=AGO))), {Case.OVERDUE: (2,)}),
        (process(replace(READY, decision=replace(QUEUED, ready=SOON))), {Case.NOT_DUE: (2,)}),
        (process(READY, PENDING), {Case.BEHIND: (2,), Case.WAITS: (3,)}),
        (process(READY, PENDING, FOLLOWS), {Case.BEHIND: (2,), Case.WAITS: (3, 5)}),
        (process(BROKEN), {Case.TASK_BROKEN: (4,)}),
        (registered(SOON), {Case.NOT_YET_BEGUN: ()}),
        (ended(ProcessState.FINISHED), {}),
        (ended(ProcessState.ABORTED), {}),
        (ended(ProcessState.ABORTED, graph=None, counted=Counted()), {}),
        (process(READY, state=ProcessState.BROKEN, error="ProcessTimeout: …"), {Case.BEHIND: (2,)}),
        (process(READY, state=ProcessState.BROKEN, error="inconsistent: …"), {Case.BEHIND: (2,)}),
        (ProcessFacts(17, None), {}),
    ],
)
def test_what_is_sound_is_only_explained(facts: ProcessFacts, found: dict[Case, tuple[int, ...]]) -> None:
    # R6
    assert cases(facts) == found
    assert {verdict(case) for case in found} <= {Verdict.DIAGNOSIS}


_POLLED = QueueFacts(slots=1, polled_at=NOW, reached=AGO - HOUR)


@pytest.mark.parametrize(
    ("queue", "up_since", "found"),
    [
        # the first of R4
        (QueueFacts(), NOW - timedelta(seconds=30), Case.SERVER_WAS_OFF),
        (QueueFacts(slots=1, polled_at=AGO), NOW - timedelta(minutes=2), Case.SERVER_WAS_OFF),
        # the second of R4
        (QueueFacts(), NOW - HOUR, Case.NOBODY_POLLS),
        (QueueFacts(polled_at=AGO), NOW - HOUR, Case.NOBODY_POLLS),
        # the third of R4, also of an actor that polls from elsewhere
        (_POLLED, NOW - HOUR, Case.BEHIND),
        (QueueFacts(slots=1), NOW - HOUR, Case.BEHIND),
        (replace(_POLLED, slots=0), NOW - HOUR, Case.BEHIND),
        (replace(_POLLED, reached=NOW), NOW - HOUR, Case.OVERTAKEN),
        (replace(_POLLED, paused=True), NOW - HOUR, Case.QUEUE_PAUSED),
        (replace(_POLLED, rests=True), NOW - HOUR, Case.QUEUE_RESTS),
        (replace(_POLLED, slots=0, polled_at=AGO, paused=True), NOW - HOUR, Case.QUEUE_PAUSED),
    ],
)
def test_why_a_task_waits_in_its_queue(queue: QueueFacts, up_since: datetime, found: Case) -> None:
    around = Surroundings(NOW, up_since, {QUEUE: queue})
    assert diagnose(process(READY), around) == (Finding(found, (2,), QUEUE),)


_WRONG: dict[str, tuple[ProcessFacts, dict[Case, tuple[int, ...]]]] = {
    # R3
    "first lost, which had not": (
        process(graph=GraphFacts(1, 1, 0), counted=Counted(), lost=(1,)),
        {Case.NO_START_TASK: (1,)},
    ),
    "first lost, of two": (process(graph=GraphFacts(2, 2, 0), counted=Counted()), {Case.TASK_LOST: (1,)}),
    "lost with its decision": (
        process(BROKEN, lost=(3,), open=(3,)),
        {Case.TASK_BROKEN: (4,), Case.TASK_LOST: (3,)},
    ),
    "process lost": (process(READY, state=None), {Case.PROCESS_LOST: ()}),
    "task lost": (process(READY, lost=(3,)), {Case.BEHIND: (2,), Case.TASK_LOST: (3,)}),
    "all lost": (process(counted=Counted(), lost=(1, 2)), {Case.TASK_LOST: (1,)}),
    "first lost, which had decided": (
        process(graph=GraphFacts(1, 1, 0), counted=Counted(), lost=(1,), lost_decided=(1,)),
        {Case.TASK_LOST: (1,)},
    ),
    "value lost": (process(READY, valueless=(1,)), {Case.BEHIND: (2,), Case.VALUE_LOST: (1,)}),
    "edge lost that nobody names": (process(replace(PENDING, sources=0)), {Case.WAITS_FOR_NOTHING: (3,)}),
    "value of nobody": (process(replace(FOLLOWS, value_of=None, value_edge=None)), {Case.WAITS_FOR_NOTHING: (5,)}),
    # R4
    "(4) with a value": (process(replace(READY, decision=MADE, valued=True)), {Case.DECIDED_NOT_APPLIED: (2,)}),
    "(4) the value of another": (
        process(replace(READY, decision=MADE, value_of=1)),
        {Case.DECIDED_NOT_APPLIED: (2,)},
    ),
    "(4) before what waits for it": (
        process(
            replace(READY, decision=MADE, valued=True),
            replace(PENDING, sources=2, unfinished_sources=2),
            replace(READY, number=6),
        ),
        {Case.DECIDED_NOT_APPLIED: (2,), Case.BEHIND: (6,)},
    ),
    "(5) no decision": (process(replace(READY, decision=None)), {Case.NOT_QUEUED: (2,)}),
    "(5) decided nothing": (process(replace(READY, decision=MADE)), {Case.NOT_QUEUED: (2,)}),
    "(6) in another queue": (
        process(replace(READY, decision=replace(QUEUED, placed=False))),
        {Case.NOT_CLAIMABLE: (2,)},
    ),
    "(6) never": (process(replace(READY, decision=replace(QUEUED, ready=None))), {Case.NOT_CLAIMABLE: (2,)}),
    "(6) held": (process(replace(READY, decision=replace(QUEUED, held=True))), {Case.NOT_CLAIMABLE: (2,)}),
    "(6) its timeout": (
        process(replace(READY, decision=replace(QUEUED, deadline_at=SOON))),
        {Case.NOT_CLAIMABLE: (2,)},
    ),
    "(7)": (process(graph=GraphFacts(1, 1, 0), counted=Counted()), {Case.NO_START_TASK: (1,)}),
    # R5
    "done": (process(), {Case.ALL_DONE: ()}),
    "never begun": (registered(AGO), {Case.NEVER_BEGUN: ()}),
    "never begun until now": (registered(NOW), {Case.NEVER_BEGUN: ()}),
    "never to be begun": (registered(None), {Case.NEVER_BEGUN: ()}),
    "over time": (process(READY, until=AGO, deadline_at=AGO), {Case.BEHIND: (2,), Case.OVER_TIME: ()}),
    "over time just now": (process(READY, until=NOW, deadline_at=NOW), {Case.BEHIND: (2,), Case.OVER_TIME: ()}),
    "done before its time": (process(until=AGO, deadline_at=SOON), {Case.ALL_DONE: ()}),
    "done in spite of its time": (process(until=AGO, deadline_at=AGO), {Case.ALL_DONE: ()}),
    # rows that disagree
    "graph lost": (process(READY, graph=None), {Case.BEHIND: (2,), Case.GRAPH_LOST: ()}),
    "graph lost in the end": (ended(ProcessState.FINISHED, graph=None), {Case.GRAPH_LOST: ()}),
    "edge lost": (process(replace(PENDING, without_edge=(1,))), {Case.EDGE_LOST: (3,)}),
    "edge of the value lost": (process(replace(FOLLOWS, value_edge=None)), {Case.EDGE_LOST: (5,)}),
    "value told by the edge": (process(replace(FOLLOWS, value_of=None)), {Case.EDGE_LOST: (5,)}),
    "not advanced": (process(replace(PENDING, unfinished_sources=0)), {Case.NOT_ADVANCED: (3,)}),
    "not advanced by one": (process(replace(PENDING, pending=2, sources=2)), {Case.NOT_ADVANCED: (3,)}),
    "does not follow": (process(replace(FOLLOWS, value_state=TaskState.FINISHED)), {Case.NOT_ADVANCED: (5,)}),
    "too early": (process(replace(READY, sources=1, unfinished_sources=1)), {Case.TOO_EARLY: (2,)}),
    "counts too few": (process(replace(PENDING, sources=2, unfinished_sources=2)), {Case.TOO_EARLY: (3,)}),
    "counts": (process(READY, graph=GraphFacts(5, 2, 0)), {Case.BEHIND: (2,), Case.WRONG_COUNTS: ()}),
    "counts of broken ones": (
        process(BROKEN, graph=GraphFacts(5, 1, 0)),
        {Case.TASK_BROKEN: (4,), Case.WRONG_COUNTS: ()},
    ),
    "counts in the end": (
        ended(ProcessState.FINISHED, graph=GraphFacts(1, 1, 0, watched=False)),
        {Case.WRONG_COUNTS: ()},
    ),
    "counts, before it is settled": (
        process(replace(PENDING, unfinished_sources=0), replace(READY, number=6), graph=GraphFacts(6, 7, 0)),
        {Case.NOT_ADVANCED: (3,), Case.BEHIND: (6,)},
    ),
    "numbers": (process(READY, graph=GraphFacts(1, 1, 0)), {Case.BEHIND: (2,), Case.WRONG_COUNTS: ()}),
    "open though finished": (process(READY, open=(1,)), {Case.BEHIND: (2,), Case.OPEN_DECISION: (1,)}),
    "open though pending": (process(replace(PENDING, decision=QUEUED)), {Case.WAITS: (3,), Case.OPEN_DECISION: (3,)}),
    "open though over": (ended(ProcessState.FINISHED, open=(1,)), {Case.OPEN_DECISION: (1,)}),
    "in work without end": (process(replace(READY, decision=replace(WORK, until=None))), {Case.UNWATCHED_WORK: (2,)}),
    "in work of nobody": (process(replace(READY, decision=replace(WORK, held=False))), {Case.UNWATCHED_WORK: (2,)}),
    "not told": (process(replace(BROKEN, told=False)), {Case.TASK_BROKEN: (4,), Case.NOT_TOLD: (4,)}),
    "told in vain": (process(replace(READY, told=True)), {Case.BEHIND: (2,), Case.TOLD_IN_VAIN: (2,)}),
    "told of the finished": (process(READY, told_in_vain=(1,)), {Case.BEHIND: (2,), Case.TOLD_IN_VAIN: (1,)}),
    "told of what is over": (ended(ProcessState.FINISHED, told_in_vain=(1,)), {Case.TOLD_IN_VAIN: (1,)}),
    "told of the aborted": (
        ended(ProcessState.ABORTED, tasks=(replace(PENDING, state=TaskState.ABORTED, told=True),)),
        {Case.TOLD_IN_VAIN: (3,)},
    ),
    "ended too early": (
        process(READY, state=ProcessState.FINISHED, ended=True),
        {Case.BEHIND: (2,), Case.ENDED_TOO_EARLY: ()},
    ),
    "a task aborted alone": (process(replace(READY, state=TaskState.ABORTED)), {Case.ENDED_TOO_EARLY: (2,)}),
    "not broken": (process(BROKEN, state=ProcessState.ACTIVE), {Case.TASK_BROKEN: (4,), Case.NOT_BROKEN: ()}),
    "broken for nothing": (
        process(READY, state=ProcessState.BROKEN),
        {Case.BEHIND: (2,), Case.BROKEN_FOR_NOTHING: ()},
    ),
    "no end": (ended(ProcessState.FINISHED, ended=False), {Case.WRONG_END: ()}),
    "an end": (process(READY, ended=True), {Case.BEHIND: (2,), Case.WRONG_END: ()}),
    "unwatched": (process(READY, graph=GraphFacts(5, 1, 0, watched=False)), {Case.BEHIND: (2,), Case.WRONG_CLOCK: ()}),
    "without time": (process(READY, deadline_at=SOON), {Case.BEHIND: (2,), Case.WRONG_CLOCK: ()}),
    "before its time": (process(READY, deadline_at=SOON, until=AGO), {Case.BEHIND: (2,), Case.WRONG_CLOCK: ()}),
    "at once, before its time": (
        process(READY, deadline_at=SOON, until=NOW),
        {Case.BEHIND: (2,), Case.WRONG_CLOCK: ()},
    ),
    "watched to no end": (ended(ProcessState.FINISHED, until=SOON), {Case.WRONG_CLOCK: ()}),
    "not aborted": (
        ended(ProcessState.ABORTED, tasks=(READY, replace(PENDING, state=TaskState.ABORTED))),
        {Case.NOT_ABORTED: (2,), Case.OPEN_DECISION: (2,)},
    ),
}


@pytest.mark.parametrize("name", _WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    facts, found = _WRONG[name]
    assert cases(facts) == found


def test_findings_are_in_order_and_each_queue_has_its_own() -> None:
    one, other = replace(QUEUED, queue="actor.b"), replace(QUEUED, queue="actor.a")
    # In a set, 16 comes before 9.
    tasks = [replace(READY, number=number, decision=one) for number in (16, 9)]
    around = replace(AROUND, queues={"actor.a": AROUND.queues[QUEUE], "actor.b": AROUND.queues[QUEUE]})
    found = diagnose(process(*tasks, replace(READY, number=7, decision=other), graph=GraphFacts(5, 3, 0)), around)
    assert found == (Finding(Case.BEHIND, (7,), "actor.a"), Finding(Case.BEHIND, (9, 16), "actor.b"))


_LOST = {Case.PROCESS_LOST, Case.TASK_LOST, Case.VALUE_LOST, Case.WAITS_FOR_NOTHING, Case.OVER_TIME}
_EXPLAINED = {
    *(Case.SERVER_WAS_OFF, Case.NOBODY_POLLS, Case.BEHIND, Case.QUEUE_PAUSED, Case.QUEUE_RESTS, Case.OVERTAKEN),
    *(Case.NOT_DUE, Case.IN_WORK, Case.OVERDUE, Case.WAITS, Case.TASK_BROKEN, Case.NOT_YET_BEGUN),
}


@pytest.mark.parametrize("case", Case)
def test_what_no_other_row_says_is_broken_and_all_else_that_is_wrong_is_repaired(case: Case) -> None:
    # R3 R6
    said = Verdict.BROKEN if case in _LOST else Verdict.DIAGNOSIS if case in _EXPLAINED else Verdict.REPAIRABLE
    found = Finding(case)
    assert found.verdict is said
    assert (found.says, found.cure) == WORDS[case]
    assert found.says != found.cure


def test_every_case_is_found_and_told() -> None:
    found = {case for _, expected in _WRONG.values() for case in expected}
    assert {case for case in Case if verdict(case) is not Verdict.DIAGNOSIS} <= found
    assert set(WORDS) == set(Case)


def test_what_is_declared_is_not_settled_by_its_counts() -> None:
    """What is left of it may have finished: the process has not."""
    facts = process(lost=(3,), state=ProcessState.BROKEN, error="inconsistent: …")
    assert facts.declared
    assert cases(facts) == {Case.TASK_LOST: (3,)}
