"""Two at one task at the same moment (P4, P5): as if they had come one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

import processes
from app.errors import BadRequest
from processes import accepting, operate, outside
from processes.answers import Answer, Handed, Value
from processes.states import DecisionState, ProcessState, TaskState
from processes.working import saving
from tests.kit import process_rows as r
from tests.kit import process_world as w
from tests.kit.faults import pause_at
from tests.kit.waiting import wait_until


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


@pytest.fixture
def one() -> int:
    return r.one_of_toil()


EVENTS: dict[str, Callable[[Handed, int], Any]] = {
    "success": lambda held, _: r.well(held),
    "failure": lambda held, _: r.badly(held, final=True),
    "sweep": lambda _held, _: r.sweep(),
    "restart": lambda _held, one: operate.restart(one, 2),
    "abort": lambda _held, one: operate.abort(one),
}


@pytest.mark.parametrize("first", ["success", "failure", "restart", "abort"])
@pytest.mark.parametrize("second", [*EVENTS])
def test_one_waits_for_the_other(first: str, second: str, one: int, session: Session, engine: Engine) -> None:
    """P4: the first has the graph, and the second sees what came of it: as if they had come one after the other."""
    held = r.handed_out("toil")
    r.let_pass()
    found: list[Any] = []

    def do_second() -> None:
        try:
            found.append(EVENTS[second](held, one))
        except BadRequest as refused:
            found.append(refused)

    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT 1 FROM tidemill.graph FOR UPDATE")
        threads = [threading.Thread(target=EVENTS[first], args=(held, one)), threading.Thread(target=do_second)]
        threads[0].start()
        wait_until(lambda: r.waits_for_a_lock(session))
        threads[1].start()
        if second == "sweep":
            threads[1].join(60)
            assert found[0].busy == 1, "it does not wait: the next one looks again"
        else:
            query = "SELECT count(*) AS waits FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            wait_until(lambda: r.rows(session, query)[0].waits == 2)
    for thread in threads:
        thread.join(60)
    assert r.check(session) == {}
    final = r.state(session, one)
    taken = r.task(session, one, 2).state == TaskState.FINISHED
    match first, second:
        case "abort", "restart":
            # The order of those that wait for a lock is Postgres's.
            assert final in (ProcessState.ACTIVE, ProcessState.ABORTED)
        case _ if "abort" in (first, second):
            assert final is (ProcessState.FINISHED if taken else ProcessState.ABORTED)
        case _ if "restart" in (first, second):
            assert final in (ProcessState.ACTIVE, ProcessState.FINISHED)
            assert r.decision(session, one, 2).epoch == (first, second).count("restart")
        case _ if "success" in (first, second):
            assert final is ProcessState.FINISHED
        case _:
            assert final is ProcessState.BROKEN


@pytest.mark.parametrize("first", ["success", "failure"])
def test_an_answer_that_is_not_committed_yet(first: str, one: int, session: Session) -> None:
    held = r.handed_out("toil")
    r.let_pass()
    r.done_elsewhere("toil")
    with pause_at("finish.before_commit") as paused:
        words = {"value": "well"} if first == "success" else {"error": {"type": "Bad", "final": True}}
        assert held.pass_key is not None
        release = {"pass_key": held.pass_key, "epoch": 0, "worker": "w/1", **words}
        thread = threading.Thread(target=outside.release, args=(one, 2), kwargs=release)
        thread.start()
        paused.wait()
        assert r.sweep().busy == 1
        assert r.decided(session, one, 2) is DecisionState.WORK
        paused.go_on()
        thread.join(60)
    assert r.decided(session, one, 2) is DecisionState.FINISH
    assert r.check(session) == {}


def test_several_answers_of_one_process_at_once(session: Session) -> None:
    # P4
    ways = [str(number) for number in range(20)]
    found = r.begin(processes.start(w.crowd, ways))
    r.well_with(r.handed_out("crowd"), ways)
    held = [r.handed_out("toil") for _ in ways]
    with saving() as connection:
        made = accepting.accept(connection, [Answer(each, Value('"well"')) for each in held])
    assert {r.word(each) for each in made.judgements} == {"taken"}
    assert r.state(session, found) is ProcessState.FINISHED
    assert r.check(session) == {}


def test_answers_of_many_processes_in_opposite_orders(session: Session) -> None:
    """Whoever locks several takes them in one order: no two wait for each other."""
    found = [r.begin(processes.start(w.crowd, ["x", "y"])) for _ in range(10)]
    for _ in found:
        r.well_with(r.handed_out("crowd"), ["x", "y"])
    held = [r.handed_out("toil") for _ in range(20)]
    halves: dict[int, list[Handed]] = {2: [], 3: []}
    for each in held:
        halves[each.number].append(each)
    failures: list[BaseException] = []

    def answer(those: list[Handed]) -> None:
        try:
            with saving() as connection:
                accepting.accept(connection, [Answer(each, Value("1")) for each in those])
        except BaseException as error:  # noqa: BLE001 - to be seen by the test
            failures.append(error)

    threads = [threading.Thread(target=answer, args=(those,)) for those in (halves[2], halves[3][::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert {r.state(session, each) for each in found} == {ProcessState.FINISHED}
    assert r.check(session) == {}
