"""Two connections accept answers for one process: one waits for the other, and both count."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from processes import Flow, ProcessState, Promise, accepting, actor, decider, operate, start
from processes.answers import Answer, Handed, Refuse, Take, Value
from processes.states import TaskState
from tests.kit import decisions
from tests.kit.waiting import wait_until

_WAITING = sa.text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@actor(name="races.part")
def part(number: int) -> int:
    return number


@actor(name="races.sum")
def total(one: int, two: int) -> int:
    return one + two


@decider(name="races.hold")
def hold(flow: Flow, promise: Promise[int]) -> Promise[int]:
    return promise


@decider(name="races.root")
def root(flow: Flow) -> Promise[int]:
    return flow.call(total, flow.call(part, 1), flow.call(part, 2))


@decider(name="races.handed_on")
def handed_on(flow: Flow) -> Promise[int]:
    one = flow.call(part, 3)
    held = flow.call(hold, flow.no_wait(one))
    return flow.call(total, held, held)


@pytest.fixture(autouse=True)
def _known(engine: Engine) -> None:
    decisions.ready()


def both(engine: Engine, one: Any, two: Any) -> Any:
    """`two` begins while `one` has not committed, and waits for it. What `two` came to."""

    def other() -> Any:
        with engine.begin() as connection:
            return two(connection)

    def waits() -> bool:
        with engine.connect() as connection:
            return bool(connection.execute(_WAITING).scalar_one())

    with ThreadPoolExecutor(1) as threads:
        with engine.begin() as connection:
            one(connection)
            found = threads.submit(other)
            wait_until(waits, what="the second waits for the first")
        return found.result(timeout=60)


def taking(handed: Handed, outcome: Value) -> Any:
    def take(connection: Connection) -> accepting.Accepted:
        return accepting.accept(connection, [Answer(handed, outcome)])

    return take


@pytest.mark.parametrize("first", [0, 1])
def test_the_last_two_that_a_task_waits_for_finish_at_once(engine: Engine, first: int) -> None:
    # P1, P4: one of them makes it ready, and only one.
    process_id = start(root)
    decisions.serve(root)
    handed = sorted(decisions.take(part), key=lambda each: each.number)
    values = [Value("1"), Value("2")]
    accepted = both(engine, taking(handed[first], values[first]), taking(handed[1 - first], values[1 - first]))
    assert accepted == accepting.Accepted([Take()], {"races.sum": 1})
    task = decisions.tasks(process_id)[4]
    assert (task.state, task.pending) == (TaskState.READY, 0)
    assert decisions.settle().called == [("races.sum", 4)]
    assert (decisions.process(process_id).state, decisions.process(process_id).value) == (ProcessState.FINISHED, 3)


@pytest.mark.parametrize("decider_first", [True, False])
def test_a_task_finishes_while_a_decider_returns_its_promise(engine: Engine, decider_first: bool) -> None:  # noqa: FBT001
    # P8
    process_id = start(handed_on)
    decisions.serve(handed_on)
    ends = taking(decisions.take(part)[0], Value("3"))
    returns = taking(decisions.take(hold)[0], Value(None, (), 2))
    accepted = both(engine, returns, ends) if decider_first else both(engine, ends, returns)
    assert accepted == accepting.Accepted([Take()], {"races.sum": 1})
    assert {number: row.state for number, row in decisions.tasks(process_id).items()} == {
        1: TaskState.FOLLOWS,
        2: TaskState.FINISHED,
        3: TaskState.FINISHED,
        4: TaskState.READY,
    }
    assert decisions.tasks(process_id)[3].value_of == 2
    decisions.settle()
    assert (decisions.process(process_id).state, decisions.process(process_id).value) == (ProcessState.FINISHED, 6)


def test_of_two_results_for_one_task_the_first_counts(engine: Engine) -> None:
    # P5
    process_id = start(root)
    decisions.serve(root)
    handed = decisions.take(part)[0]
    accepted = both(engine, taking(handed, Value("10")), taking(handed, Value("20")))
    assert accepted.judgements == [Refuse("the task has finished already")]
    assert decisions.tasks(process_id)[handed.number].result == 10
    assert decisions.graph(process_id).unfinished == 3


def test_a_restart_waits_for_a_result_and_undoes_it(engine: Engine) -> None:
    # P5, R10
    process_id = start(root)
    decisions.serve(root)
    handed = min(decisions.take(part), key=lambda each: each.number)
    restarted = both(engine, taking(handed, Value("10")), lambda _: operate.restart(process_id, handed.number))
    assert restarted.again == (handed.number, 4)
    task, decision = decisions.tasks(process_id)[handed.number], decisions.decisions(process_id)[handed.number]
    assert (task.state, task.result, decision.epoch, decision.state) == (TaskState.READY, None, 1, "QUEUED")
    assert decisions.graph(process_id).unfinished == 4
