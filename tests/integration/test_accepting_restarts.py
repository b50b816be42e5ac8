"""What a restart must not let through."""

from __future__ import annotations

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from app.errors import BadRequest, NotFound
from processes import Flow, ProcessState, Promise, actor, decider, operate, start
from processes.answers import Refuse, Value
from processes.states import TaskState
from tests.kit import decisions
from tests.kit.faults import installed

PRICES = {"apple": 5}


@actor(name="restarts.price")
def price(thing: str) -> int:
    return PRICES[thing]


@decider(name="restarts.cheap")
def cheap(flow: Flow, found: int, same: Promise[int]) -> Promise[int] | str:
    return same if found < 10 else "too dear"


@decider(name="restarts.buy")
def buy(flow: Flow, thing: str) -> Promise[object]:
    found = flow.call(price, thing)
    return flow.call(cheap, found, flow.no_wait(found))


@pytest.fixture(autouse=True)
def _known(engine: Engine) -> None:
    decisions.ready()


def test_a_decider_whose_value_is_one_that_it_has_looked_at_decides_anew() -> None:
    # P8, R10
    process_id = start(buy, "apple")
    decisions.settle()
    assert decisions.process(process_id).value == 5
    assert decisions.edges(process_id) == {(2, 3, False), (2, 3, True), (3, 1, True)}
    PRICES["apple"] = 50
    try:
        assert operate.preview(process_id, 2).again == (2, 3)
        restarted = operate.restart(process_id, 2)
        assert (restarted.again, restarted.follows) == ((2, 3), (1,))
        # P1: not before what it waits for.
        assert decisions.tasks(process_id)[3].state == TaskState.PENDING
        assert decisions.settle().called == [("restarts.price", 2), ("restarts.cheap", 3)]
    finally:
        PRICES["apple"] = 5
    assert decisions.process(process_id).value == "too dear"


def test_what_tasks_carry_is_not_read(engine: Engine) -> None:
    # R10: of thousands of tasks it may be more than memory holds.
    process_id = start(buy, "apple")
    decisions.settle()
    read: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        read.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        operate.preview(process_id)
        operate.restart(process_id)
    finally:
        event.remove(engine, "before_cursor_execute", note)
    selects = [each for each in read if each.startswith("SELECT tidemill.task.")]
    assert len(selects) == 4
    assert [each for each in selects if ".arguments" in each or ".result" in each] == []


def test_a_decider_that_is_restarted_still_waits_for_what_it_waited_for() -> None:
    # P1, R10
    process_id = start(buy, "apple")
    decisions.settle()
    operate.restart(process_id, 3)
    operate.restart(process_id, 2)
    assert {number: row.state for number, row in decisions.tasks(process_id).items()} == {
        1: TaskState.FOLLOWS,
        2: TaskState.READY,
        3: TaskState.PENDING,
    }
    assert decisions.settle().called == [("restarts.price", 2), ("restarts.cheap", 3)]
    assert decisions.process(process_id).state == ProcessState.FINISHED


def test_an_answer_from_before_two_restarts_is_not_that_of_a_new_task() -> None:
    # P5: the numbers of tasks that were forgotten are not given again.
    process_id = start(buy, "apple")
    decisions.serve(buy)
    (late,) = decisions.take(price)
    operate.restart(process_id)
    operate.restart(process_id)
    decisions.serve(buy)
    assert sorted(decisions.tasks(process_id)) == [1, 4, 5]
    assert isinstance(decisions.answer(late, Value("1000")), Refuse)
    decisions.settle()
    assert decisions.process(process_id).value == 5


def test_what_never_began_has_nothing_to_do_again() -> None:
    process_id = start(buy, "apple")
    with pytest.raises(BadRequest, match="has not begun"):
        operate.restart(process_id)
    operate.abort(process_id)
    assert decisions.settle().called == []
    with pytest.raises(BadRequest, match="only one that goes on can be aborted"):
        operate.abort(process_id)
    with pytest.raises(NotFound, match="restarted from its start"):
        operate.restart(process_id, 2)
    # R10: an aborted process goes on.
    assert operate.restart(process_id).again == (1,)
    assert ("restarts.buy", 1) in decisions.settle().called


def test_a_task_that_is_restarted_when_it_was_just_handed_out_is_not_called_without_its_values() -> None:
    # P1, R10
    process_id = start(buy, "apple")
    decisions.serve(buy)
    decisions.serve(price)
    left = [2]

    def restart(point: str) -> None:
        if point == "claim.committed" and left:
            operate.restart(process_id, left.pop())

    with installed(restart):
        assert decisions.serve(cheap).called == []
    assert decisions.tasks(process_id)[3].state == TaskState.PENDING
    assert decisions.settle().called == [("restarts.price", 2), ("restarts.cheap", 3)]
    assert decisions.process(process_id).value == 5


@pytest.mark.parametrize("first", ["result", "restart"])
def test_a_result_of_before_the_restart_is_refused_and_recorded(first: str) -> None:
    # P5
    process_id = start(buy, "apple")
    decisions.serve(buy)
    (late,) = decisions.take(price)
    if first == "result":
        decisions.answer(late, Value("7"))
    operate.restart(process_id, 2)
    assert decisions.answer(late, Value("8")) == Refuse("an operator has restarted the task since it was handed out")
    (recorded,) = decisions.answers(process_id, 2)
    assert recorded.refused == "an operator has restarted the task since it was handed out"
    decisions.settle()
    assert decisions.process(process_id).value == 5
