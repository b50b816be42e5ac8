"""What becomes of answers: taken, tried again, broken, refused; and what is kept of each (P4, P5, P9)."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from processes import Failure, Flow, ProcessState, Promise, Retry, actor, decider, preferences, start
from processes.answers import Again, Answer, Break, Failed, Refuse, Take, Value
from processes.states import DecisionState, TaskState
from tests.kit import decisions

SOON = Retry(max_attempts=3, delay="0s")
calls: Counter[str] = Counter()


class Declined(Exception):
    pass


@actor(name="answers.pay", retry=SOON, fail_types=[Declined])
def pay(how: str) -> Any:
    calls[how] += 1
    if how == "declined":
        raise Declined("no money")
    if how == "never" or (how == "later" and calls[how] < 3):
        raise RuntimeError(f"away, {calls[how]}")
    return {"nul": "a\x00b", "deep": _deep(150), "mark": {"$value": 3}}.get(how, how)


def _deep(levels: int) -> Any:
    return [_deep(levels - 1)] if levels else []


@actor(name="answers.again", retry=SOON, accept_first=False)
def last(how: str) -> str:
    return how


@actor(name="answers.echo")
def echo(value: Any) -> Any:
    return {"failed": value.type, "why": value.message} if isinstance(value, Failure) else value


@decider(name="answers.root", retry=SOON)
def root(flow: Flow, how: str, policy: dict[str, Any]) -> Promise[Any]:
    retry = Retry(policy["attempts"], "0s") if "attempts" in policy else None
    return flow.call(echo, flow.call(pay, how, retry=retry, fail_types=policy.get("fail_types")))


@decider(name="answers.last", retry=SOON)
def root_of_last(flow: Flow) -> Promise[Any]:
    return flow.call(last, "it")


@decider(name="answers.two")
def two(flow: Flow, one: str, other: str) -> Promise[Any]:
    flow.call(pay, one)
    return flow.call(pay, other)


@decider(name="answers.strange")
def strange(flow: Flow, number: int, *, follow: bool) -> Any:
    return flow.promise(number) if follow else flow.call(echo, flow.promise(number))


@decider(name="answers.circle")
def circle(flow: Flow) -> Promise[Any]:
    # The first of them will say that its value is that of the last: tasks 2, 3 and 4.
    waits = [flow.call(strange, 4, kwargs={"follow": True})]
    for _ in range(2):
        waits.append(flow.call(echo, 1, after=waits[-1:]))
    return waits[-1]


@decider(name="answers.soon")
def soon(flow: Flow, delay: float) -> Promise[Any]:
    return flow.call(echo, flow.call(echo, 1, delay=delay), delay=timedelta(seconds=delay))


@pytest.fixture(autouse=True)
def _known(engine: Engine) -> None:
    calls.clear()
    decisions.ready()


def ended(how: str, **policy: Any) -> int:
    process_id = start(root, how, policy)
    decisions.settle(in_a_hurry=True)
    return process_id


@pytest.mark.parametrize("how", ["well", "nul", "deep", "mark"])
def test_a_value_arrives_as_it_was_returned(how: str) -> None:
    # P4
    process = decisions.process(ended(how))
    assert process.state == ProcessState.FINISHED
    returned = pay(how)
    assert process.value == ({"$plain": returned} if how == "mark" else returned)


def test_what_failed_is_tried_again_and_each_attempt_is_kept() -> None:
    # P9
    process_id = ended("later")
    assert decisions.process(process_id).value == "later"
    kept = decisions.answers(process_id, 2)
    assert [(row.error, row.refused) for row in kept] == [
        ("RuntimeError: away, 1", None),
        ("RuntimeError: away, 2", None),
    ]
    assert all("raise RuntimeError" in row.traceback for row in kept)


def test_what_fails_for_good_breaks_its_task_and_what_waits_for_it_waits() -> None:
    # P9
    process_id = ended("never")
    assert calls["never"] == 3
    process, tasks = decisions.process(process_id), decisions.tasks(process_id)
    assert (process.state, process.value) == (ProcessState.BROKEN, None)
    assert process.error == "task 2, answers.pay: RuntimeError: away, 3"
    assert [tasks[number].state for number in (1, 2, 3)] == [TaskState.FOLLOWS, TaskState.BROKEN, TaskState.PENDING]
    broken = decisions.broken(process_id)[2]
    assert (broken.actor, broken.type, broken.message) == ("answers.pay", "RuntimeError", "away, 3")
    assert len(decisions.answers(process_id, 2)) == 3
    assert decisions.decisions(process_id)[2].state == DecisionState.FINISH


def test_the_other_branches_of_a_broken_process_go_on() -> None:
    # P9
    process_id = start(two, "never", "well")
    decisions.settle(in_a_hurry=True)
    tasks, graph = decisions.tasks(process_id), decisions.graph(process_id)
    assert [tasks[number].state for number in (1, 2, 3)] == [TaskState.FINISHED, TaskState.BROKEN, TaskState.FINISHED]
    assert (graph.unfinished, graph.broken) == (1, 1)
    assert decisions.process(process_id).state == ProcessState.BROKEN


@pytest.mark.parametrize(
    ("how", "policy", "value", "attempts"),
    [
        ("declined", {}, {"failed": "Declined", "why": "no money"}, 1),
        ("never", {"fail_types": ["RuntimeError"]}, {"failed": "RuntimeError", "why": "away, 1"}, 1),
        ("never", {"fail_types": ["Exception"], "attempts": 9}, {"failed": "RuntimeError", "why": "away, 1"}, 1),
        ("declined", {"fail_types": [], "attempts": 2}, None, 2),
        ("never", {"attempts": 5}, None, 5),
        ("never", {"attempts": 1}, None, 1),
    ],
)
def test_what_the_decider_says_rules_over_what_the_actor_says(
    how: str, policy: dict[str, Any], value: Any, attempts: int
) -> None:
    # P9
    process = decisions.process(ended(how, **policy))
    assert (process.value, calls[how]) == (value, attempts)
    assert process.state == (ProcessState.BROKEN if value is None else ProcessState.FINISHED)


def taken_twice(accept_first: bool) -> tuple[int, Any, Any]:  # noqa: FBT001
    """A task that was handed out, taken back, and handed out again."""
    process_id = start(root_of_last)
    decisions.serve(root_of_last)
    preferences.configure("answers.again", {"accept_first": accept_first})
    (early,) = decisions.take(last)
    assert decisions.answer(early, Failed(("OSError", "Exception"), "lost")) == Again(SOON.delay)  # type: ignore[arg-type]
    (late,) = decisions.take(last)
    assert early.pass_key != late.pass_key
    return process_id, early, late


def test_the_first_good_result_is_taken_of_whichever_hand_out() -> None:
    # P5
    process_id, early, late = taken_twice(accept_first=True)
    assert decisions.answer(early, Value('"early"')) == Take()
    assert decisions.answer(late, Value('"late"')) == Refuse("the process is FINISHED")
    assert decisions.process(process_id).value == "early"
    assert [row.refused for row in decisions.answers(process_id, 2)] == [None, "the process is FINISHED"]


def test_only_the_present_hand_out_is_taken_where_it_is_to_be_so() -> None:
    # P5
    process_id, early, late = taken_twice(accept_first=False)
    assert decisions.answer(early, Value('"early"')) == Refuse("the task was handed out again since")
    assert decisions.answer(late, Value('"late"')) == Take()
    assert decisions.process(process_id).value == "late"
    refused = decisions.answers(process_id, 2)[-1]
    assert (refused.refused, refused.worker) == ("the task was handed out again since", "worker-1")


def test_a_late_failure_is_only_recorded() -> None:
    # P5
    process_id, early, late = taken_twice(accept_first=True)
    before = decisions.decisions(process_id)[2]
    verdict = decisions.answer(early, Failed(("OSError", "Exception"), "lost again"))
    assert isinstance(verdict, Refuse)
    assert decisions.decisions(process_id)[2] == before
    assert decisions.answers(process_id, 2)[-1].error == "OSError: lost again"
    assert decisions.answer(late, Value("1")) == Take()


def test_a_result_that_comes_after_all_mends_a_broken_task() -> None:
    # P5
    process_id, early, late = taken_twice(accept_first=True)
    assert decisions.answer(late, Failed(("OSError", "Exception"), "gone", final=True)) == Break()
    assert decisions.process(process_id).state == ProcessState.BROKEN
    assert decisions.answer(early, Value("7")) == Take()
    assert decisions.broken(process_id) == {}
    graph, process = decisions.graph(process_id), decisions.process(process_id)
    assert (graph.unfinished, graph.broken, process.state, process.value) == (0, 0, ProcessState.FINISHED, 7)
    assert process.error is None


@pytest.mark.parametrize(("number", "follow", "told"), [(9, True, "has no task 9"), (9, False, "has no task 9")])
def test_a_task_that_there_is_not_breaks_who_names_it(number: int, follow: bool, told: str) -> None:  # noqa: FBT001
    process_id = start(strange, number, kwargs={"follow": follow})
    assert decisions.settle().called == [("answers.strange", 1)]
    assert told in decisions.broken(process_id)[1].message
    assert decisions.tasks(process_id).keys() == {1}


def test_a_circle_breaks_who_closes_it() -> None:
    # P8
    process_id = start(strange, 1, kwargs={"follow": True})
    decisions.settle()
    assert "neither would ever end" in decisions.broken(process_id)[1].message
    process_id = start(strange, 1, kwargs={"follow": False})
    decisions.settle()
    assert decisions.broken(process_id).keys() == {1}
    assert decisions.graph(process_id).tasks == 1


def test_a_circle_through_tasks_that_wait_for_each_other_breaks_who_closes_it() -> None:
    # P8
    process_id = start(circle)
    decisions.settle()
    assert "task 2 cannot have the value of task 4" in decisions.broken(process_id)[2].message
    states = {number: row.state for number, row in decisions.tasks(process_id).items()}
    assert states == {1: TaskState.FOLLOWS, 2: TaskState.BROKEN, 3: TaskState.PENDING, 4: TaskState.PENDING}


@pytest.mark.parametrize("delay", [0, 0.01])
def test_a_delay_may_be_none_at_all(delay: float) -> None:
    process_id = start(soon, delay)
    decisions.settle(in_a_hurry=True)
    assert decisions.process(process_id).state == ProcessState.FINISHED
    assert [decisions.tasks(process_id)[number].delay for number in (2, 3)] == [timedelta(seconds=delay)] * 2


def test_words_that_postgres_cannot_hold_cost_nothing() -> None:
    # P4
    process_id = start(two, "well", "well")
    decisions.serve(two)
    one, other = sorted(decisions.take(pay), key=lambda handed: handed.number)
    accepted = decisions.accept(
        Answer(one, Failed(("X", "Exception"), "nul \x00 and half \ud800", "\x00", final=True)),
        Answer(other, Value("2")),
    )
    assert accepted.judgements == [Break(), Take()]
    assert decisions.tasks(process_id)[3].result == 2
    assert "\x00" not in decisions.broken(process_id)[2].message
