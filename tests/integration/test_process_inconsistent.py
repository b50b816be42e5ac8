"""Processes that have lost a part of themselves, or whose rows make no sense: told, and nobody else waits for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy.orm import Session

from processes import operate, preferences, start
from processes.answers import Value
from processes.flow import Planned
from processes.states import DecisionState, ProcessState
from tests.kit import process_rows as r
from tests.kit import process_world as w


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


def _in_work() -> int:
    found = r.one_of_toil()
    r.handed_out("toil")
    r.let_pass(where=f"process_id = {found}")
    return found


def test_what_has_lost_a_task_is_broken(session: Session) -> None:
    # R3
    found, other = _in_work(), _in_work()
    r.execute(f"DELETE FROM tidemill.task WHERE process_id = {found} AND number = 2")  # noqa: S608
    report = r.sweep()
    assert (report.inconsistent, report.restarted) == (1, 1)
    assert r.state(session, found) is ProcessState.BROKEN
    assert "it has lost its task, task 2" in r.process(session, found).error
    assert r.decided(session, found, 2) is DecisionState.FINISH
    assert r.decided(session, other, 2) is DecisionState.QUEUED, "the rest goes on"
    assert r.sweep() == type(report)()


@pytest.mark.parametrize("restarted", [True, False])
def test_a_lost_graph_is_made_again(session: Session, *, restarted: bool) -> None:
    # R3: all that it says is said by the tasks as well.
    found, other = _in_work(), _in_work()
    if restarted:
        preferences.configure("crowd", {"when_inconsistent": "restart"})
    r.execute(f"DELETE FROM tidemill.graph WHERE process_id = {found}")  # noqa: S608
    report = r.sweep()
    assert (report.inconsistent, report.restarted) == (0, 2)
    assert r.check(session) == {}
    r.due_again()
    for handed in (r.handed_out("toil"), r.handed_out("toil")):
        assert r.word(r.well(handed)) == "taken"
    assert {r.state(session, each) for each in (found, other)} == {ProcessState.FINISHED}


def test_what_has_lost_a_task_is_restarted_if_its_type_says_so(session: Session) -> None:
    # R3
    found = _in_work()
    late = r.decision(session, found, 1)
    preferences.configure("crowd", {"when_inconsistent": "restart"})
    r.execute(f"DELETE FROM tidemill.task WHERE process_id = {found} AND number = 2")  # noqa: S608
    assert r.sweep().inconsistent == 1
    assert r.state(session, found) is ProcessState.REGISTERED
    r.begin(found)
    root = r.decision(session, found, 1)
    assert (root.epoch, root.state) == (late.epoch + 1, DecisionState.QUEUED)
    r.well_with(r.handed_out("crowd"), ["x"])
    again = r.handed_out("toil")
    assert again.number == 3, "what answers late to task 2 finds nobody"
    r.well(again)
    assert r.state(session, found) is ProcessState.FINISHED
    assert r.check(session) == {}


def test_a_row_that_makes_no_sense_stops_no_sweep(session: Session) -> None:
    # R3
    found, other = _in_work(), _in_work()
    preferences.configure("toil", {"restart_after_work_timeout": False, "retry": 1})
    r.execute(f"UPDATE tidemill.graph SET tasks = 2, unfinished = 0 WHERE process_id = {found}")  # noqa: S608
    report = r.sweep()
    assert (report.failed, report.broken) == (1, 1)
    assert r.state(session, other) is ProcessState.BROKEN


def test_a_decision_of_a_process_that_is_over_is_ended(session: Session) -> None:
    found = _in_work()
    r.execute(f"UPDATE tidemill.process SET state = 'ABORTED', ended_at = now() WHERE id = {found}")  # noqa: S608
    assert r.sweep().inconsistent == 1
    assert r.decided(session, found, 2) is DecisionState.FINISH
    assert r.state(session, found) is ProcessState.ABORTED


def test_one_that_was_aborted_before_it_began_goes_on(session: Session) -> None:
    found = start(w.crowd, ["x"])
    operate.abort(found)
    assert operate.preview(found).again == (1,)
    operate.restart(found)
    assert r.state(session, found) is ProcessState.REGISTERED
    r.begin(found)
    r.well_with(r.handed_out("crowd"), ["x"])
    r.well(r.handed_out("toil"))
    assert r.state(session, found) is ProcessState.FINISHED
    assert r.check(session) == {}


def test_an_aborted_process_keeps_what_had_finished(session: Session) -> None:
    """What only waited for the value of another task is not restarted for having been aborted."""
    found = r.begin(start(w.crowd, ["x"]))
    calls = [Planned("toil", '{"args": ["x"], "kwargs": {}}') for _ in range(2)]
    r.answer(r.handed_out("crowd"), Value(None, calls, value_of=-1))
    r.well(r.handed_out("toil"))
    before = operate.preview(found, 3)
    operate.abort(found)
    assert operate.preview(found, 3) == before
    assert (before.again, before.follows, before.forgotten) == ((3,), (1,), ())
    operate.restart(found, 3)
    assert r.check(session) == {}
    again = r.handed_out("toil")
    assert again.number == 3
    r.well(again, "at last")
    assert r.process(session, found).value == "at last"
    assert r.check(session) == {}
