"""Two workers, a late one and an operator at one task, in all orders (P5): what is taken, and what is recorded with
which reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.orm import Session

import processes
from app.errors import BadRequest, ClaimLost
from processes import operate, outside, preferences
from processes.states import ProcessState
from processes.working import heartbeat, saving
from tests.kit import process_rows as r
from tests.kit import process_world as w

RESTARTED = "an operator has restarted the task since it was handed out"
AGAIN = "the task was handed out again since"
LATE = "a late failure: the task was taken back or handed out again since"
DONE = "the task has finished already"
BROKEN = "the task was broken meanwhile"
BAD = "Bad: on purpose"


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


@pytest.fixture
def one() -> int:
    return r.one_of_toil()


def settings(**words: Any) -> None:
    preferences.configure("toil", words)


def taken_back() -> None:
    """What is in work is overdue, and handed out again at once."""
    r.let_pass()
    r.sweep()
    r.due_again()


@pytest.mark.parametrize("accept_first", [True, False])
def test_on_time(*, accept_first: bool, one: int, session: Session) -> None:
    settings(accept_first=accept_first)
    assert r.word(r.well(r.handed_out("toil"))) == "taken"
    assert r.process(session, one).state == "FINISHED"
    assert r.recorded(session, one) == []
    assert r.check(session) == {}


# An answer that comes after the task was taken back.


@pytest.mark.parametrize("accept_first", [True, False])
@pytest.mark.parametrize("since", ["waits", "in work"])
def test_late(*, accept_first: bool, since: str, one: int, session: Session) -> None:
    # P5: taken from an earlier hand-out, or only with the current pass.
    settings(accept_first=accept_first)
    late = r.handed_out("toil", "w/late")
    taken_back()
    second = r.handed_out("toil", "w/2") if since == "in work" else None
    judged = r.word(r.well(late, "late"))
    assert judged == ("taken" if accept_first else AGAIN)
    assert r.check(session) == {}
    if accept_first:
        assert (r.state(session, one), r.task(session, one, 2).result) == (ProcessState.FINISHED, "late")
        assert r.hand_out("toil") is None, "nobody is given what is done"
        if second:
            # The first counts, and the second is recorded.
            assert "FINISHED" in r.word(r.well(second, "second"))
            assert r.recorded(session, one) == [("the process is FINISHED", None)]
    else:
        assert r.recorded(session, one) == [(AGAIN, None)]
        assert r.word(r.well(second or r.handed_out("toil"), "second")) == "taken"
        assert r.task(session, one, 2).result == "second"
    assert r.check(session) == {}


@pytest.mark.parametrize("accept_first", [True, False])
@pytest.mark.parametrize("since", ["waits", "in work"])
def test_a_late_failure_is_only_recorded(*, accept_first: bool, since: str, one: int, session: Session) -> None:
    settings(accept_first=accept_first, fail_types="Bad")
    late = r.handed_out("toil", "w/late")
    taken_back()
    second = r.handed_out("toil", "w/2") if since == "in work" else None
    before = r.decision(session, one, 2)
    assert r.word(r.badly(late)) == LATE
    assert r.decision(session, one, 2) == before
    assert r.recorded(session, one) == [(LATE, BAD)]
    assert r.word(r.well(second or r.handed_out("toil"))) == "taken"
    assert r.check(session) == {}


def test_both_are_good(session: Session) -> None:
    # P5: the first wins, whichever it is; the second is recorded. The process goes on meanwhile.
    found = r.begin(processes.start(w.crowd, ["x", "y"]))
    r.well_with(r.handed_out("crowd"), ["x", "y"])
    first = r.handed_out("toil", "w/1")
    taken_back()
    second = r.handed_out("toil", "w/2")
    other = r.handed_out("toil", "w/3")
    if second.number != first.number:
        second, other = other, second
    assert r.word(r.well(second, "second")) == "taken"
    assert r.word(r.well(first, "first")) == DONE
    assert r.word(r.badly(first)) == DONE
    assert r.word(r.well(second, "second")) == DONE, "the same answer twice"
    assert r.task(session, found, first.number).result == "second"
    assert r.recorded(session, found, first.number) == [(DONE, None), (DONE, BAD), (DONE, None)]
    assert r.check(session) == {}
    assert r.word(r.well(other)) == "taken"
    assert r.state(session, found) is ProcessState.FINISHED


def test_failures_of_both(one: int, session: Session) -> None:
    first = r.handed_out("toil", "w/1")
    taken_back()
    second = r.handed_out("toil", "w/2")
    assert (r.word(r.badly(first)), r.word(r.badly(second))) == (LATE, "again")
    row = r.decision(session, one, 2)
    assert (row.state, row.failures, row.restarts, row.error) == ("QUEUED", 1, 1, BAD)
    assert r.word(r.badly(second)) == LATE, "the same failure twice is one"
    assert r.decision(session, one, 2).failures == 1
    assert r.recorded(session, one) == [(LATE, BAD), (None, BAD), (LATE, BAD)]
    assert r.check(session) == {}


# An answer to a task that is broken.


@pytest.mark.parametrize("accept_first", [True, False])
def test_a_success_heals(*, accept_first: bool, one: int, session: Session) -> None:
    # P5: for an unfinished task; a broken one is.
    settings(accept_first=accept_first)
    late = r.handed_out("toil", "w/late")
    taken_back()
    assert r.word(r.badly(r.handed_out("toil", "w/2"), final=True)) == "broken"
    assert r.state(session, one) is ProcessState.BROKEN
    assert r.broken(session, one) == {2: ("Bad", "on purpose")}
    assert r.check(session) == {}
    assert r.word(r.badly(late)) == LATE
    assert r.word(r.well(late)) == ("taken" if accept_first else BROKEN)
    assert r.check(session) == {}
    if accept_first:
        row = r.process(session, one)
        assert (row.state, row.error, r.broken(session, one)) == ("FINISHED", None, {})
    else:
        assert r.state(session, one) is ProcessState.BROKEN
        assert r.recorded(session, one)[-1] == (BROKEN, None)


@pytest.mark.parametrize("order", [1, -1])
def test_healing_one_of_two(order: int, session: Session) -> None:
    found = r.begin(processes.start(w.crowd, ["x", "y"]))
    r.well_with(r.handed_out("crowd"), ["x", "y"])
    first, second = (r.handed_out("toil"), r.handed_out("toil"))[::order]
    assert [r.word(r.badly(each, final=True)) for each in (first, second)[::order]] == ["broken", "broken"]
    assert r.word(r.well(first)) == "taken"
    assert r.state(session, found) is ProcessState.BROKEN
    assert list(r.broken(session, found)) == [second.number]
    assert f"task {second.number}" in r.process(session, found).error
    assert r.check(session) == {}
    assert r.word(r.well(second)) == "taken"
    assert r.state(session, found) is ProcessState.FINISHED
    assert r.check(session) == {}


# An operator in between.


@pytest.mark.parametrize("before", ["waits", "in work", "taken back", "failed", "broken", "finished"])
def test_an_operator_restarts_it(before: str, one: int, session: Session) -> None:
    # P5: what was handed out before does not count any more, good or bad.
    late = None
    if before != "waits":
        late = r.handed_out("toil", "w/late")
    match before:
        case "taken back":
            taken_back()
        case "failed":
            assert late
            assert r.word(r.badly(late)) == "again"
        case "broken":
            assert late
            assert r.word(r.badly(late, final=True)) == "broken"
        case "finished":
            assert late
            assert r.word(r.well(late)) == "taken"
        case _:
            pass
    told = operate.restart(one, 2)
    assert (told.again, told.follows, told.forgotten, told.actors) == ((2,), (), (), ("toil",))
    row = r.decision(session, one, 2)
    assert (row.state, row.epoch, row.failures, row.restarts) == ("QUEUED", 1, 0, 0)
    assert (r.state(session, one), r.broken(session, one)) == (ProcessState.ACTIVE, {})
    assert r.check(session) == {}
    if late is not None:
        for outcome in (r.well, r.badly):
            assert r.word(outcome(late)) == RESTARTED
        assert r.recorded(session, one)[-2:] == [(RESTARTED, None), (RESTARTED, BAD)]
    fresh = r.handed_out("toil", "w/2")
    assert fresh.epoch == 1
    if late is not None:
        assert r.word(r.well(late)) == RESTARTED
    assert r.word(r.well(fresh, "fresh")) == "taken"
    assert r.task(session, one, 2).result == "fresh"
    assert r.check(session) == {}


def test_restarted_twice(one: int, session: Session) -> None:
    """The numbers of tasks that are forgotten are nobody else's: their late answers find no task."""
    late = r.handed_out("toil", "w/late")
    for _ in range(2):
        assert operate.restart(one).again == (1,)
        assert r.tasks(session, one) == {1: "READY"}
        assert r.check(session) == {}
    assert r.word(r.well(late)) == "there is no such task"
    r.well_with(r.handed_out("crowd"), ["y"])
    (number,) = set(r.tasks(session, one)) - {1}
    assert r.word(r.well(late, "of another call")) == "there is no such task"
    assert r.task(session, one, number).result is None
    assert r.check(session) == {}


@pytest.mark.parametrize("before", ["waits", "in work", "taken back", "broken"])
def test_an_operator_aborts_it(before: str, one: int, session: Session) -> None:
    late = None if before == "waits" else r.handed_out("toil", "w/late")
    if before == "taken back":
        taken_back()
    if before == "broken":
        assert late
        assert r.word(r.badly(late, final=True)) == "broken"
    operate.abort(one, reason="enough")
    row = r.process(session, one)
    assert (row.state, row.error) == ("ABORTED", "aborted: enough")
    assert r.tasks(session, one) == {1: "FINISHED", 2: "ABORTED"}
    assert r.check(session) == {}
    assert r.hand_out("toil") is None
    if late is not None:
        assert [r.word(each(late)) for each in (r.well, r.badly)] == ["the process is ABORTED"] * 2
        assert r.recorded(session, one)[-2:] == [("the process is ABORTED", None), ("the process is ABORTED", BAD)]
    r.let_pass()
    r.sweep_all()
    assert r.state(session, one) is ProcessState.ABORTED
    with pytest.raises(BadRequest, match="ABORTED"):
        operate.abort(one)
    # And goes on where it was.
    assert operate.restart(one, 2).again == (2,)
    assert late is None or r.word(r.well(late)) == RESTARTED
    assert r.word(r.well(r.handed_out("toil"))) == "taken"
    assert r.state(session, one) is ProcessState.FINISHED
    assert r.check(session) == {}


@pytest.mark.parametrize("after", ["taken back", "restarted", "aborted", "finished", "handed out again"])
def test_a_heartbeat_of_somebody_who_lost_it(after: str, one: int, session: Session) -> None:
    late = r.handed_out("toil", "w/late")
    with saving() as connection:
        assert heartbeat(connection, late, r.MINUTE) is not None
    match after:
        case "taken back":
            taken_back()
        case "restarted":
            operate.restart(one, 2)
        case "aborted":
            operate.abort(one)
        case "finished":
            r.well(late)
        case _:
            taken_back()
            r.handed_out("toil", "w/2")
    before = r.decision(session, one, 2)
    with saving() as connection:
        assert heartbeat(connection, late, r.MINUTE) is None
    assert late.pass_key is not None
    r.done_elsewhere("toil")
    with pytest.raises(ClaimLost, match="taken back"):
        outside.heartbeat(one, 2, pass_key=late.pass_key)
    assert r.decision(session, one, 2) == before


def test_a_heartbeat_moves_its_end_on(one: int, session: Session) -> None:
    held = r.handed_out("toil")
    r.execute("UPDATE tidemill.decision SET recovery_time = now() + interval '1 second' WHERE state = 'WORK'")
    with saving() as connection:
        until = heartbeat(connection, held, r.MINUTE)
    assert until == r.decision(session, one, 2).recovery_time
    r.execute("UPDATE tidemill.decision SET recovery_time = now() - interval '1 second' WHERE state = 'WORK'")
    with saving() as connection:
        assert heartbeat(connection, held, r.MINUTE) is None, "too late"


def test_a_setting_that_changes_while_it_is_in_work(one: int, session: Session) -> None:
    """The answer is measured by what holds when it comes."""
    late = r.handed_out("toil", "w/late")
    taken_back()
    settings(accept_first=False)
    assert r.word(r.well(late)) == AGAIN
    settings(accept_first=True)
    assert r.word(r.well(late)) == "taken"
    assert r.check(session) == {}


def test_retries_and_fail_types_that_change_while_it_is_in_work(session: Session) -> None:
    found = r.begin(processes.start(w.crowd, ["x", "y"]))
    r.well_with(r.handed_out("crowd"), ["x", "y"])
    first, second = r.handed_out("toil"), r.handed_out("toil")
    settings(retry="1")
    assert r.word(r.badly(first)) == "broken"
    settings(fail_types="Bad,Worse")
    assert r.word(r.badly(second)) == "taken"
    row = r.task(session, found, second.number)
    assert (row.state, row.failed) == ("FINISHED", True)
    assert row.result == {"$failure": {"type": "Bad", "message": "on purpose"}}
    assert r.check(session) == {}
