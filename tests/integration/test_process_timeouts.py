"""Every way in which the time of a task can be over (P6, P7), as a table; and who is asked first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from sqlalchemy.orm import Session

import processes
from app.settings import settings
from processes import operate, preferences
from processes.answers import Handed
from processes.states import ProcessState
from recovery import graphs
from recovery import processes as late_processes
from tests.kit import process_rows as r
from tests.kit import process_world as w


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


class Stands(NamedTuple):
    """How the task stands: state of the task and of its decision, restarts, failures, and the last error's type."""

    task: str
    decision: str
    restarts: int = 0
    failures: int = 0
    error: str | None = None


IN_WORK = Stands("READY", "WORK")
RESTARTED = Stands("READY", "QUEUED", restarts=1, error="WorkTimeout")
TRIED_AGAIN = Stands("READY", "QUEUED", failures=1, error="WorkTimeout")
TOO_LATE = Stands("BROKEN", "FINISH", error="TaskTimeout")

#: By whether the task timeout is off, or over before or after the work timeout, `restart_after_work_timeout`, and
#: `force_finish_after_task_timeout`: how the task stands after the first moment, and after the second.
TABLE: dict[tuple[str, bool, bool], tuple[Stands, Stands]] = {
    ("off", True, False): (RESTARTED, RESTARTED),
    ("off", True, True): (RESTARTED, RESTARTED),
    ("off", False, False): (TRIED_AGAIN, TRIED_AGAIN),
    ("off", False, True): (TRIED_AGAIN, TRIED_AGAIN),
    ("before", True, False): (IN_WORK, TOO_LATE),
    ("before", True, True): (TOO_LATE, TOO_LATE),
    ("before", False, False): (IN_WORK, TOO_LATE),
    ("before", False, True): (TOO_LATE, TOO_LATE),
    ("after", True, False): (RESTARTED, TOO_LATE._replace(restarts=1)),
    ("after", True, True): (RESTARTED, TOO_LATE._replace(restarts=1)),
    ("after", False, False): (TRIED_AGAIN, TOO_LATE._replace(failures=1)),
    ("after", False, True): (TRIED_AGAIN, TOO_LATE._replace(failures=1)),
}
#: An answer that comes then, by `accept_first` and whether the task is broken.
LATE = {
    (True, False): "taken",
    (True, True): "taken",
    (False, False): "the task was handed out again since",
    (False, True): "the task was broken meanwhile",
}


def _task(**settings: object) -> tuple[int, Handed]:
    """A process whose only task beside the first is in work."""
    preferences.configure("toil", {"task_timeout": None, **settings})
    found = r.begin(processes.start(w.crowd, ["x"]))
    r.well_with(r.handed_out("crowd"), ["x"])
    return found, r.handed_out("toil")


def _stands(session: Session, process_id: int) -> Stands:
    row = r.decision(session, process_id, 2)
    error = row.error.partition(":")[0] if row.error else None
    return Stands(r.task(session, process_id, 2).state, row.state, row.restarts, row.failures, error)


def _work_timeout_is_over() -> None:
    r.let_pass(where="state = 'WORK'")
    r.sweep_all()


def _task_timeout_is_over() -> None:
    # What ends it while it is in work is the least of both moments; what waits is looked at then.
    r.let_pass("deadline_at")
    r.let_pass("force_at")
    r.execute(
        "UPDATE tidemill.decision SET recovery_time = CASE state WHEN 'WORK' THEN least(recovery_time, force_at) "
        "ELSE deadline_at END WHERE state <> 'FINISH'"
    )
    r.sweep_all()


def _process_timeout_is_over() -> None:
    r.let_pass("deadline_at", table="process")
    r.let_pass("recovery_time", table="process")
    late_processes.run_once()


@pytest.mark.parametrize(("timeout", "restart", "force"), TABLE)
def test_the_table(timeout: str, *, restart: bool, force: bool, session: Session) -> None:
    # P6
    first, second = TABLE[timeout, restart, force]
    for accept_first, comes, over in itertools.product((True, False), ("on time", "late", "never"), (False, True)):
        preferences.configure("crowd", {"process_timeout": "1h" if over else None})
        found, held = _task(
            accept_first=accept_first,
            restart_after_work_timeout=restart,
            force_finish_after_task_timeout=force,
            task_timeout=None if timeout == "off" else "30s" if timeout == "before" else "10min",
        )
        case = (timeout, restart, force, accept_first, comes, over)
        if over:
            _process_timeout_is_over()
        assert r.state(session, found) is (ProcessState.BROKEN if over else ProcessState.ACTIVE), case
        assert _stands(session, found) == IN_WORK, case
        if comes == "on time":
            assert r.word(r.well(held)) == "taken", case
        moments = [_work_timeout_is_over]
        if timeout != "off":
            moments.insert(0 if timeout == "before" else 1, _task_timeout_is_over)
        for moment, expected in zip(moments, (first, second), strict=False):
            moment()
            done = Stands("FINISHED", "FINISH")
            assert _stands(session, found) == (done if comes == "on time" else expected), case
        taken = comes == "on time"
        if comes == "late":
            judged = r.word(r.well(held))
            assert judged == LATE[accept_first, second.task == "BROKEN"], case
            taken = judged == "taken"
        broken = over or second.task == "BROKEN"
        state = ProcessState.FINISHED if taken else ProcessState.BROKEN if broken else ProcessState.ACTIVE
        assert r.state(session, found) is state, case
        assert r.check(session) == {}, case
        if not taken:
            operate.abort(found)


def test_a_second_sweep_changes_nothing(session: Session) -> None:
    # R7
    found, _ = _task()
    _work_timeout_is_over()
    before = r.decision(session, found, 2)
    report = r.sweep()
    assert (report.restarted, report.ended) == (0, 0)
    assert r.decision(session, found, 2) == before


def test_nothing_is_swept_before_its_time(session: Session) -> None:
    # R6
    found, _ = _task(task_timeout="10min")
    r.sweep_all()
    assert _stands(session, found) == IN_WORK


def test_for_a_lease_after_the_server_came_no_time_is_over(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    # R6: of a process, of a task in work and of one that waits: who works may report first.
    preferences.configure("crowd", {"process_timeout": "1h"})
    at_work, held = _task(task_timeout="10min")
    waiting = r.begin(processes.start(w.crowd, ["x"]))
    registered = processes.start(w.crowd, ["x"])
    monkeypatch.setenv("TIDEMILL_LEASE", "1d")
    settings.cache_clear()
    for column in ("deadline_at", "recovery_time"):
        r.let_pass(column)
        r.let_pass(column, table="process")
    r.sweep_all()
    late_processes.run_once()
    assert _stands(session, at_work) == IN_WORK
    assert r.decision(session, waiting, 1).state == "QUEUED"
    assert {r.state(session, each) for each in (at_work, waiting)} == {ProcessState.ACTIVE}
    assert r.state(session, registered) is not ProcessState.REGISTERED, "nobody could report to what has not begun"
    assert r.word(r.well(held)) == "taken"
    monkeypatch.setenv("TIDEMILL_LEASE", "1s")
    settings.cache_clear()
    late_processes.run_once()
    assert r.state(session, waiting) is ProcessState.BROKEN


def test_the_error_of_a_timeout_may_be_accepted(session: Session) -> None:
    # P9: a result like any other; what comes later is too late.
    found, held = _task(task_timeout="30s", force_finish_after_task_timeout=True, fail_types="TaskTimeout")
    _task_timeout_is_over()
    row = r.task(session, found, 2)
    assert (row.state, row.failed, row.result["$failure"]["type"]) == ("FINISHED", True, "TaskTimeout")
    assert r.state(session, found) is ProcessState.FINISHED
    assert r.word(r.well(held)) == "the process is FINISHED"


def test_a_work_timeout_that_may_be_accepted(session: Session) -> None:
    found, held = _task(restart_after_work_timeout=False, fail_types="WorkTimeout")
    _work_timeout_is_over()
    assert r.task(session, found, 2).result["$failure"]["type"] == "WorkTimeout"
    assert r.word(r.badly(held)) == "the process is FINISHED"


def test_restarted_so_often_and_then_broken(session: Session) -> None:
    # R2: the counter of the actor goes by it.
    found, _ = _task(max_restarts=2)
    for restarts in (1, 2):
        _work_timeout_is_over()
        assert _stands(session, found) == RESTARTED._replace(restarts=restarts)
        r.due_again()
        r.handed_out("toil")
    _work_timeout_is_over()
    assert _stands(session, found) == Stands("BROKEN", "FINISH", restarts=2, error="WorkTimeout")
    query = "SELECT work_timeouts FROM tidemill.actor_preferences WHERE name = 'toil'"
    assert r.rows(session, query)[0].work_timeouts == 3


def test_without_restarts_the_retries_are_those_of_the_policy(session: Session) -> None:
    # P6
    found, _ = _task(restart_after_work_timeout=False, retry=2)
    _work_timeout_is_over()
    assert _stands(session, found) == TRIED_AGAIN
    r.due_again()
    r.handed_out("toil")
    _work_timeout_is_over()
    assert _stands(session, found) == Stands("BROKEN", "FINISH", failures=1, error="WorkTimeout")


def test_of_a_batch_nobody_knows_which(session: Session) -> None:
    """Each is handed out alone, at no charge; what must not be restarted is not, whoever had others beside it."""
    for restart, expected in ((True, Stands("READY", "QUEUED", error="WorkTimeout")), (False, TRIED_AGAIN)):
        preferences.configure("toil", {"restart_after_work_timeout": restart})
        found = r.begin(processes.start(w.crowd, ["x", "y"]))
        r.well_with(r.handed_out("crowd"), ["x", "y"])
        assert len(r.handed_out_together("toil", 100)) == 2
        _work_timeout_is_over()
        assert _stands(session, found) == expected
        assert r.decision(session, found, 2).alone is restart
        operate.abort(found)


def test_a_queued_task_whose_time_is_over_is_not_handed_out(session: Session) -> None:
    # P6: also where no sweep has looked.
    preferences.configure("toil", {"task_timeout": "30s"})
    found = r.begin(processes.start(w.crowd, ["x"]))
    r.well_with(r.handed_out("crowd"), ["x"])
    r.let_pass("deadline_at")
    r.let_pass()
    r.serve("toil")
    assert r.broken(session, found)[2][0] == "TaskTimeout"
    assert w.called(session, "toil") == []
    assert r.check(session) == {}


def test_a_restart_gives_all_the_time_again(session: Session) -> None:
    found, _ = _task(task_timeout="30s", force_finish_after_task_timeout=True)
    _task_timeout_is_over()
    assert _stands(session, found) == TOO_LATE
    operate.restart(found, 2)
    query = "SELECT deadline_at > now() AS later, deadline_at = recovery_time AS same FROM tidemill.decision"
    assert tuple(r.rows(session, query + " WHERE number = 2")[0]) == (True, True)
    r.sweep_all()
    assert _stands(session, found) == Stands("READY", "QUEUED")


def test_tasks_go_on_when_the_time_of_the_process_is_over(session: Session) -> None:
    # P7
    preferences.configure("crowd", {"process_timeout": "1h"})
    found, held = _task()
    _process_timeout_is_over()
    row = r.process(session, found)
    assert (row.state, row.error.partition(":")[0]) == ("BROKEN", "ProcessTimeout")
    assert r.broken(session, found) == {}
    assert r.word(r.badly(held)) == "again"
    assert r.state(session, found) is ProcessState.BROKEN
    r.due_again()
    assert r.word(r.badly(r.handed_out("toil"), final=True)) == "broken"
    assert r.word(r.well(held)) == "taken"
    assert r.state(session, found) is ProcessState.FINISHED
    assert r.check(session) == {}


def test_a_process_that_is_late_stays_broken_when_a_task_heals(session: Session) -> None:
    # P7: the last of its branches ends it, or nothing does.
    preferences.configure("crowd", {"process_timeout": "1h"})
    found = r.begin(processes.start(w.crowd, ["x", "y"]))
    r.well_with(r.handed_out("crowd"), ["x", "y"])
    first, second = r.handed_out("toil"), r.handed_out("toil")
    _process_timeout_is_over()
    assert r.word(r.badly(first, final=True)) == "broken"
    assert r.word(r.well(first)) == "taken"
    late_processes.run_once()
    assert r.state(session, found) is ProcessState.BROKEN
    assert r.process(session, found).error.startswith("ProcessTimeout")
    assert r.word(r.well(second)) == "taken"
    assert r.state(session, found) is ProcessState.FINISHED


def _looked_at_in(session: Session, table: str = "graph", key: str = "process_id") -> str:
    """When recovery looks at it, in hours; afterwards, as if that had been planned long ago."""
    query = f"SELECT round(extract(epoch FROM recovery_time - now()) / 3600, 1) AS hours FROM tidemill.{table}"  # noqa: S608
    (row,) = r.rows(session, query)
    r.execute(f"UPDATE tidemill.{table} SET recovery_time = now() + interval '1 min' WHERE {key} > 0")  # noqa: S608
    return str(row.hours)


def test_every_change_of_a_graph_puts_off_its_look_by_the_idle_timeout_of_the_type(session: Session) -> None:
    # P2 P7
    preferences.configure("crowd", {"idle_process_timeout": "3h"})
    found = processes.start(w.crowd, ["x", "y"])
    assert _looked_at_in(session, "process", "id") == "3.0"
    r.begin(found)
    assert _looked_at_in(session) == "3.0", "begun"
    r.well_with(r.handed_out("crowd"), ["x", "y"])
    assert _looked_at_in(session) == "3.0", "a result with new tasks"
    assert r.word(r.badly(r.handed_out("toil"), final=True)) == "broken"
    assert _looked_at_in(session) == "3.0", "a task that broke"
    r.handed_out("toil")
    r.let_pass()
    assert r.sweep().restarted == 1
    assert _looked_at_in(session) == "3.0", "a task that was taken back"
    operate.restart(found, 2)
    assert _looked_at_in(session) == "3.0", "an operator's restart"
    r.let_pass(table="graph")
    graphs.run_once()
    assert _looked_at_in(session) == "3.0", "a look that found nothing to do"
