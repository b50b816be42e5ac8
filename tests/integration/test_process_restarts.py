"""Restarts with other values, in place and as copies, and of what must not be called twice; on real rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.audit import Audit
from app.errors import BadRequest, NotFound, NotRepeatable, TooLarge
from processes import (
    Failure,
    Flow,
    ProcessState,
    Promise,
    Retry,
    actor,
    decider,
    operate,
    preferences,
    show,
    start,
    starting,
)
from processes.answers import Refuse, Take, Value
from recovery import invariants, operations
from recovery.operations import Ids, Kind, Order
from tests.kit import decisions
from tests.kit import operation_rows as o
from tests.kit import process_rows as r

BAD: set[str] = set()


@actor(name="redo.price", retry=Retry(max_attempts=1))
def price(thing: str, count: int = 1) -> int:
    if thing in BAD:
        raise LookupError(thing)
    return len(thing) * count


@actor(name="redo.charge", repeatable=False, retry=Retry(max_attempts=1))
def charge(amount: int) -> str:
    return f"charged {amount}"


@actor(name="redo.note")
def note(paid: object, done: object) -> str:
    return f"{paid}, {done}"


@decider(name="redo.pay")
def pay(flow: Flow, amount: int) -> Promise[str]:
    return flow.call(charge, amount)


@decider(name="redo.order")
def order(flow: Flow, thing: str) -> Promise[str]:
    """1 order; 2 price, 3 pay, 4 price of the parcel, 5 note; 6 charge."""
    amount = flow.call(price, thing)
    paid = flow.call(pay, amount)
    return flow.call(note, paid, flow.call(price, "parcel"))


@pytest.fixture(autouse=True)
def _known(engine: Engine) -> Iterator[None]:
    decisions.ready()
    preferences.synchronize()
    yield
    BAD.clear()


def ordered(thing: str = "apple", **words: Any) -> int:
    found = start(order, thing, **words)
    decisions.settle()
    return found


def states(process_id: int) -> dict[int, str]:
    return {task.number: str(task.state) for task in show(process_id).tasks}


def is_well(session: Session) -> bool:
    return r.check(session) == {} and invariants.check(session) == []


def test_other_arguments_are_those_of_the_task_from_now_on(session: Session) -> None:
    # R10
    found = ordered()
    assert show(found).value == "charged 5, 6"
    assert operate.restart(found, 4, args=["box"], kwargs={"count": 3}, reason="a smaller one").again == (4, 5)
    assert decisions.settle().called == [("redo.price", 4), ("redo.note", 5)]
    assert show(found).value == "charged 5, 9"
    # What is not given stays as it is.
    operate.restart(found, 4, kwargs={"count": 1})
    decisions.settle()
    assert show(found).value == "charged 5, 3"
    assert show(found).tasks[3].args == ["box"]
    told = session.query(Audit).filter_by(action="process.restart", subject=str(found)).order_by(Audit.id).first()
    assert told is not None
    assert told.reason == "a smaller one"
    assert told.detail == {
        "again": [4, 5],
        "forgotten": [],
        "from": 4,
        "arguments": '{"args":["box"],"kwargs":{"count":3}}',
    }
    assert is_well(session)


def test_arguments_name_values_as_they_are_shown() -> None:
    found = ordered()
    assert show(found).tasks[4].args == [{"$value": 3}, {"$value": 4}]
    operate.restart(
        found, 5, args=[{"$value": 4}, [{"$plain": {"$value": 1}}, {"$failure": {"type": "a", "message": "b"}}]]
    )
    decisions.settle()
    assert show(found).value == f"6, {[{'$value': 1}, Failure('a', 'b')]}"
    # It does not use the value of task 3 any more, and still waits for it.
    assert operate.restart(found, 3, repeat=True).again == (3, 5)
    assert states(found)[5] == "PENDING"
    decisions.settle()
    assert show(found).state is ProcessState.FINISHED


@pytest.mark.parametrize(
    ("task", "words", "error", "told"),
    [
        (4, {"args": ["x"] * 3}, BadRequest, "cannot be called so"),
        (4, {"args": "apple"}, BadRequest, "must be a list"),
        (4, {"kwargs": ["count"]}, BadRequest, "must be a dict"),
        (4, {"args": ["x" * 2**20]}, TooLarge, "take"),
        (4, {"args": [{1, 2}]}, BadRequest, "has no JSON form"),
        (4, {"args": [{"$value": 2}]}, BadRequest, "does not wait for task 2, .*: it waits for none"),
        (5, {"args": [{"$value": True}, 1]}, BadRequest, "an object of your own is written"),
        (5, {"args": [{"$promise": 3}, 1]}, BadRequest, "is an actor, which needs values"),
        (3, {"args": [{"$promise": 99}]}, BadRequest, "there is no task 99"),
        (4, {"args": ["x"], "result": 1}, BadRequest, "give it no arguments"),
        (4, {"result": {1, 2}}, BadRequest, "has no JSON form"),
        (4, {"result": "x" * 2**20}, TooLarge, "the value of the task"),
        (99, {"result": 1}, NotFound, "has no task 99"),
    ],
)
def test_what_is_given_in_vain_changes_nothing(
    task: int, words: dict[str, Any], error: type[Exception], told: str
) -> None:
    found = ordered()
    before = show(found)
    for does in (operate.preview, operate.restart):
        with pytest.raises(error, match=told):
            does(found, task, **words)
    assert show(found).tasks == before.tasks


def test_a_result_is_taken_in_the_place_of_the_answer(session: Session) -> None:
    # P4, P5, R10
    BAD.add("apple")
    found = ordered()
    assert (show(found).state, states(found)[2]) == (ProcessState.BROKEN, "BROKEN")
    with pytest.raises(BadRequest, match="waits for task 2: its result is taken once that has finished"):
        operate.restart(found, 3, result=1)
    told = operate.restart(found, 2, result=40)
    assert (told.given, told.again, told.actors) == (2, (3, 5), ("redo.note", "redo.pay"))
    assert decisions.settle().called == [("redo.pay", 3), ("redo.charge", 6), ("redo.note", 5)]
    assert show(found).value == "charged 40, 6"
    assert show(found).tasks[1].attempts == 0
    assert is_well(session)


def test_a_result_for_a_decider_is_its_value_and_none_is_one_too(session: Session) -> None:
    found = ordered()
    told = operate.restart(found, 3, result=None, repeat=True)
    assert (told.given, told.again, told.forgotten, dict(told.not_repeatable)) == (3, (5,), (6,), {"redo.charge": (6,)})
    decisions.settle()
    assert show(found).value == "None, 6"
    # Of the first task: that of the process.
    operate.restart(found, result={"$value": 3})
    assert (show(found).state, show(found).value) == (ProcessState.FINISHED, {"$value": 3})
    assert states(found) == {1: "FINISHED"}
    assert is_well(session)


def test_answers_of_the_time_before_do_not_count(session: Session) -> None:
    # P5
    found = start(order, "apple")
    starting.run_once()
    decisions.serve(order)
    other, handed = decisions.take(price)
    assert (other.number, handed.number) == (2, 4)
    copy = operate.restart(found, 4, copy=True, result=7).copy
    # The original stays as it is, and takes what it has asked for.
    operate.restart(found, 4, result=8)
    verdict = decisions.answer(handed, Value("9"))
    assert isinstance(verdict, Refuse)
    assert "restarted the task since" in verdict.why
    assert isinstance(decisions.answer(other, Value("5")), Take)
    decisions.settle()
    assert (show(found).value, show(copy or 0).value) == ("charged 5, 8", "charged 5, 7")
    assert is_well(session)


def test_what_is_not_repeatable_is_called_again_only_if_that_is_meant(session: Session) -> None:
    # R10
    BAD.add("apple")
    found = ordered()
    # It was not called yet.
    assert operate.preview(found).not_repeatable == {}
    BAD.clear()
    operate.restart(found)
    decisions.settle()
    # Asked for anew, all of them have new numbers.
    for task, numbers in ((None, (10,)), (6, (10,)), (7, (10,)), (10, (10,)), (8, ())):
        told = operate.preview(found, task)
        assert dict(told.not_repeatable) == ({"redo.charge": numbers} if numbers else {}), task
    before = states(found)
    with pytest.raises(NotRepeatable, match=r"redo.charge \(task 10\), declared with repeatable=False"):
        operate.restart(found, 6)
    assert states(found) == before
    # As long as nobody has called it again it may have been called before.
    operate.restart(found, 10, repeat=True)
    with pytest.raises(NotRepeatable):
        operate.restart(found, 10)
    # An operator may say otherwise.
    preferences.configure("redo.charge", {"repeatable": "yes"})
    operate.restart(found, 10)
    decisions.settle()
    assert is_well(session)


def test_operations_skip_what_is_not_repeatable(session: Session) -> None:
    # R9
    one, two = ordered("apple"), ordered("fig")
    skipped = operations.start(Order(Kind.RESTART_TASK, Ids((one,)), task=2), rate=None)
    done = operations.start(Order(Kind.RESTART, Ids((two,)), repeat=True), rate=None)
    o.work_off()
    [item] = operations.items(skipped)
    assert (str(item.state), "redo.charge (task 6)" in (item.outcome or "")) == ("SKIPPED", True)
    assert [str(each.state) for each in operations.items(done)] == ["DONE"]
    assert (states(one)[2], states(two)) == ("FINISHED", {1: "READY"})
    with pytest.raises(BadRequest, match="abort calls nothing again"):
        Order(Kind.ABORT, Ids((one,)), repeat=True)
    decisions.settle()
    assert is_well(session)


def test_a_copy_goes_its_own_way(session: Session) -> None:
    # R10
    found = ordered(custom_id="o-1", idempotency_key="k-1", attributes={"shop": 7}, priority=3)
    before = show(found)
    told = operate.preview(found, 4, copy=True)
    assert (told.again, told.copy) == ((4, 5), None)
    copy = operate.restart(found, 4, args=["box"], copy=True).copy
    assert copy is not None
    assert copy > found
    made = show(copy)
    assert (made.copied_from, made.state, made.custom_id, made.idempotency_key) == (found, "ACTIVE", "o-1", None)
    assert (made.attributes, made.priority, made.begun_at is not None) == ({"shop": 7}, 3, True)
    # What is kept is not called again.
    assert decisions.settle().called == [("redo.price", 4), ("redo.note", 5)]
    assert show(copy).value == "charged 5, 3"
    after = show(found)
    assert after.tasks == before.tasks
    assert (after.value, after.copies, after.ended_at) == (before.value, (copy,), before.ended_at)
    # Its own results are as good as those that it was given.
    with pytest.raises(NotRepeatable):
        operate.restart(copy, 6)
    operate.restart(copy, 2, repeat=True)
    decisions.settle()
    assert is_well(session)


def test_a_copy_of_one_that_goes_on_and_is_broken_and_of_one_that_was_aborted(session: Session) -> None:
    BAD.update(("apple", "parcel"))
    found = start(order, "apple")
    decisions.settle()
    assert [number for number, state in states(found).items() if state == "BROKEN"] == [2, 4]
    # What it does not do again is as broken as it was.
    copy = operate.restart(found, 2, result=1, copy=True).copy or 0
    assert show(copy).state is ProcessState.BROKEN
    assert decisions.settle().called == [("redo.pay", 3), ("redo.charge", 6)]
    assert show(copy).tasks[3].broken is not None
    operate.abort(copy)
    BAD.clear()
    again = operate.restart(copy, 4, copy=True).copy or 0
    assert decisions.settle().called == [("redo.price", 4), ("redo.note", 5)]
    assert (show(again).value, show(again).copied_from) == ("charged 1, 6", copy)
    assert [show(each).state for each in (found, copy)] == ["BROKEN", "ABORTED"]
    assert is_well(session)


def test_a_copy_does_what_is_in_work_itself(session: Session) -> None:
    found = start(order, "apple")
    starting.run_once()
    decisions.serve(order)
    in_work = decisions.take(price)
    assert {each.number for each in in_work} == {2, 4}
    told = operate.restart(found, 4, copy=True)
    assert told.again == (2, 4, 5)
    for each in in_work:
        decisions.answer(each, Value("5" if each.number == 2 else "6"))
    decisions.settle()
    assert {show(each).value for each in (found, told.copy or 0)} == {"charged 5, 6"}
    assert is_well(session)


def test_one_that_has_lost_its_start_is_copied_from_nothing(session: Session) -> None:
    found = ordered()
    r.execute("DELETE FROM tidemill.task WHERE process_id = :id AND number = 1", id=found)
    with pytest.raises(NotRepeatable):
        operate.restart(found, copy=True)
    with pytest.raises(BadRequest, match="no task that could be given a result"):
        operate.restart(found, result=1)
    copy = operate.restart(found, args=["fig"], copy=True, repeat=True).copy or 0
    assert (show(copy).state, show(copy).copied_from) == (ProcessState.REGISTERED, found)
    assert operate.restart(found, args=["figs"], repeat=True).again == (1,)
    decisions.settle()
    assert (show(copy).value, show(found).value) == ("charged 3, 6", "charged 4, 6")
    assert is_well(session)
