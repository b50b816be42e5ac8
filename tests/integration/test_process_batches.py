"""A batch of small tasks: each has an outcome of its own, whatever the others do."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.claims import Cursor, Lane, keeper
from app.errors import BadRequest, TooLarge
from processes import Flow, accepting, loading, operate, outside, preferences, start
from processes.answers import Value
from processes.flow import WAITS_MOST, Planned
from processes.model import Decision, queue_of
from processes.serving import Served
from processes.states import DecisionState, ProcessState, TaskState
from tests.kit import process_rows as r
from tests.kit import process_world as w
from tests.kit.waiting import pause, wait_until


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


def _crowd(ways: list[str]) -> int:
    found = r.begin(start(w.crowd, ways))
    r.well_with(r.handed_out("crowd"), ways)
    return found


def _serve_together(calls: Any) -> None:
    """All that is ready in one claim."""
    own = r.server(calls)
    queue = queue_of("toil")
    own.serve(queue, 1)
    own.served[queue].pace.seconds = 1e-6
    own.serve(queue, 100)


class Calls(r.Calls):
    """Says what each call is to do, by its task."""

    def __init__(self, does: dict[int, Any]) -> None:
        self.does = does

    def call_for_value(self, work: Any, name: str, args: Any, kwargs: Any, limit: float | None) -> Any:
        found = self.does.get(work.id)
        return super().call_for_value(work, name, args, kwargs, limit) if found is None else (None, found())


def test_what_was_answered_does_not_wait_for_a_long_call(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one after it takes long: meanwhile, what is done is done."""
    monkeypatch.setattr(keeper, "REST_SECONDS", 0.1)
    found = _crowd(["x"] * 4)

    def long() -> str:
        wait_until(lambda: r.tasks(session, found)[3] is TaskState.FINISHED, 60)
        return "long"

    _serve_together(Calls({4: long}))
    assert set(r.tasks(session, found).values()) == {TaskState.FINISHED}
    assert r.check(session) == {}


def test_one_that_was_lost_stops_no_other_call(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "REST_SECONDS", 60.0)
    monkeypatch.setattr("processes.working.HELD_LEAST", timedelta(0))
    r.execute("UPDATE tidemill.actor_preferences SET work_timeout = interval '5 seconds' WHERE name = 'toil'")
    one, other = _crowd(["x"]), _crowd(["x", "x", "x"])

    def long() -> str:
        """The one behind it is taken away, and the keeper looks."""
        operate.abort(other)
        holding = keeper.keeper._holding
        assert holding is not None
        seen = holding.extended_at
        wait_until(lambda: holding.extended_at > seen, 60)
        assert not holding.lost
        return "long"

    own = r.server(Calls({2: long}))
    monkeypatch.setattr("processes.serving.BATCHED_FROM", timedelta(0))
    own.served[queue_of("toil")] = served = _served()
    served.pace.seconds = 1e-6
    own.serve(queue_of("toil"), 100)
    assert r.state(session, one) is ProcessState.FINISHED
    assert r.state(session, other) is ProcessState.ABORTED
    assert r.check(session) == {}


def _served() -> Served:
    return Served(Cursor(Decision, queue_of("toil"), Lane.MAIN))


@pytest.mark.parametrize("error", [TypeError("a bug"), OperationalError("s", {}, Exception("too complex"))])
def test_an_answer_that_cannot_be_saved_costs_no_other(
    error: Exception, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.claims.saving.BLOCKED_SECONDS", 0.1)
    found = _crowd(["x"] * 4)
    real = accepting.accept

    def accept(connection: Any, answers: Any) -> Any:
        if any(each.handed.number == 4 and isinstance(each.outcome, Value) for each in answers):
            raise error
        return real(connection, answers)

    monkeypatch.setattr(accepting, "accept", accept)
    preferences.configure("toil", {"retry": 1})
    _serve_together(Calls({}))
    states = dict(r.tasks(session, found))
    assert states.pop(4) is TaskState.BROKEN
    assert set(states.values()) == {TaskState.FINISHED}
    assert "cannot be saved" in r.broken(session, found)[4][1]
    assert r.check(session) == {}


def test_what_was_never_handed_out_is_not_answered_for(session: Session) -> None:
    # P5 P10
    found = r.one_of_toil()
    r.done_elsewhere("toil")
    forged = outside.release(found, 2, pass_key=uuid.uuid4(), epoch=0, value="forged", worker="w")
    assert (forged.outcome, forged.why) == ("refused", "the task was not handed out")
    nothing: Any = None
    with pytest.raises(BadRequest, match="must be what the task was handed out with"):
        outside.release(found, 2, pass_key=nothing, epoch=0, error={"type": "Bad"}, worker="w")
    with pytest.raises(BadRequest, match="is done by workers"):
        outside.release(found, 1, pass_key=uuid.uuid4(), epoch=0, value="forged", worker="w")
    assert r.decided(session, found, 2) is DecisionState.QUEUED
    assert r.check(session) == {}


def test_thousands_of_promises_that_were_passed_on(session: Session) -> None:
    """More than a list of pairs could name in one statement."""
    found = _crowd(["x"] * 12_000)
    held = r.handed_out("toil")
    # As a decider would that was given all of them.
    named = tuple(range(3, 12_002))
    call = Planned("toil", '{"args": ["x"], "kwargs": {}}', after=named)
    assert r.word(r.answer(held, Value('"well"', [call]))) == "taken"
    assert r.task(session, found, 12_002).pending == len(named)
    operate.restart(found)
    assert r.tasks(session, found) == {1: TaskState.READY}
    assert r.check(session) == {}


def test_values_that_no_worker_could_hold(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "USES_UNASKED", 1)
    monkeypatch.setattr(loading, "INPUT_MOST", 100)
    found = _crowd(["x"] * 2)
    calls = [Planned("toil", '{"args": [[{"$value": 3}, {"$value": 2}]], "kwargs": {}}', uses=(2, 3))]
    r.answer(r.handed_out("toil"), Value(f'"{"x" * 80}"', calls))
    r.well(r.handed_out("toil"), "y" * 80)
    r.serve("toil")
    assert r.broken(session, found)[4][0] == "TooLarge"
    assert r.check(session) == {}


def test_values_that_no_actor_elsewhere_is_sent(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    # P10: its task is broken, and the others of the same poll are handed out.
    monkeypatch.setattr(loading, "USES_UNASKED", 1)
    monkeypatch.setattr(loading, "INPUT_MOST", 100)
    found = _crowd(["x"] * 2)
    calls = [Planned("toil", '{"args": [[{"$value": 3}, {"$value": 2}]], "kwargs": {}}', uses=(2, 3))]
    calls += [Planned("toil", '{"args": ["x"], "kwargs": {}}')] * 2
    r.answer(r.handed_out("toil"), Value(f'"{"x" * 80}"', calls))
    r.well(r.handed_out("toil"), "y" * 80)
    r.done_elsewhere("toil")
    assert sorted(each.task for each in outside.poll("toil", 10, worker="w")) == [5, 6]
    assert r.broken(session, found)[4][0] == "TooLarge"
    assert r.check(session) == {}


def test_promises_that_are_waited_for_are_bounded() -> None:
    flow = Flow()
    promises = [flow.call(w.toil, "x") for _ in range(1000)]
    for _ in range(WAITS_MOST // 1000):
        flow.call(w.toil, "x", after=promises)
    with pytest.raises(TooLarge, match="wait for more than"):
        flow.call(w.toil, "x", after=promises)


@pytest.mark.parametrize("at", [datetime.min.replace(tzinfo=UTC), datetime(9500, 1, 1, tzinfo=UTC), "tomorrow"])
def test_a_moment_that_is_none(at: Any) -> None:
    with pytest.raises(BadRequest, match="must be a datetime"):
        Flow().call(w.toil, "x", at=at)


def test_the_limit_of_an_outside_actor_counts_tasks(session: Session) -> None:
    # P10: not polls.
    found = _crowd(["x"] * 10)
    r.done_elsewhere("toil")
    preferences.configure("toil", {"max_parallel": 2})
    first = outside.poll("toil", 10, worker="w")
    assert len(first) == 2
    assert outside.poll("toil", 10, worker="w") == []
    outside.release(found, first[0].task, pass_key=first[0].pass_key, epoch=0, value=1, worker="w")
    assert len(outside.poll("toil", 10, worker="w")) == 1
    preferences.configure("toil", {"max_parallel": None})
    assert len(outside.poll("toil", 10, worker="w")) == 7


def test_what_takes_long_to_load_is_worked_on_all_the_same(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """An overloaded database must not make work go round that nobody begins."""
    load = loading.load

    def slow(*arguments: Any) -> Any:
        pause(keeper.REST_SECONDS + 2 * keeper.TICK_SECONDS)
        return load(*arguments)

    preferences.configure("toil", {"work_timeout": "1min"})
    found = _crowd(["x"])
    monkeypatch.setattr(loading, "load", slow)
    r.serve("toil")
    assert set(r.tasks(session, found).values()) == {TaskState.FINISHED}
