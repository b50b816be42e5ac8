"""Real workers at tasks that hang, beat, fail and take their process along (P3, P6, P9)."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from processes import preferences, start
from processes.states import TaskState
from tests.kit import process_rows as r
from tests.kit import process_world as w
from tests.kit.process import Processes
from tests.kit.waiting import wait_until

SECONDS = 300


@pytest.fixture
def env(env: dict[str, str], engine: Engine) -> dict[str, str]:
    w.create(engine)
    preferences.synchronize()
    return env | {"TIDEMILL_MODULES": w.MODULES, "TIDEMILL_SWEEP_INTERVAL": "200ms", "TIDEMILL_LEASE": "1s"}


def _ends(session: Session, process_id: int, state: str) -> None:
    def there() -> bool:
        # Whoever waits for its next hand-out need not wait for long.
        r.execute("UPDATE tidemill.decision SET not_before = NULL WHERE state = 'QUEUED' AND not_before > now()")
        return str(r.state(session, process_id)) == state

    wait_until(there, SECONDS, f"it is {state}")
    assert r.check(session) == {}


@pytest.mark.parametrize(("way", "name", "calls"), [("hang", "toil", 4), ("hang", "hasty", 3)])
def test_a_call_that_hangs(
    way: str, name: str, calls: int, env: dict[str, str], processes: Processes, session: Session
) -> None:
    # P6, R2: stopped at its limit and handed out again, `max_restarts` times; then it is broken, and the rest goes on.
    if name == "hasty":
        # Its time is shorter than the pause between two looks at what a worker holds.
        env |= {"TIDEMILL_LEASE": "5min"}
    worker = processes.celery_worker(env, concurrency=1)
    processes.scheduler(env)
    found = start(w.crowd, [way, "x", "y"], name)
    _ends(session, found, "BROKEN")
    wait_until(lambda: list(r.tasks(session, found).values()).count(TaskState.FINISHED) == 3, SECONDS)
    # A call may have been stopped before it was noted.
    assert 1 <= w.called(session, name).count(way) <= calls, worker.log
    assert {kind for kind, _ in r.broken(session, found).values()} == {"WorkTimeout"}
    row = r.decision(session, found, 2)
    assert (row.restarts, row.failures) == (calls - 1, 0)
    query = "SELECT work_timeouts FROM tidemill.actor_preferences WHERE name = :name"
    assert r.rows(session, query, name=name)[0].work_timeouts == calls
    assert worker.status is None


def test_a_call_that_hangs_and_is_not_to_be_restarted(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    # P6: an error, which the retry policy follows.
    preferences.configure("toil", {"restart_after_work_timeout": False, "retry": 2, "work_timeout": "1s"})
    processes.celery_worker(env, concurrency=1)
    processes.scheduler(env)
    found = start(w.crowd, ["hang"])
    _ends(session, found, "BROKEN")
    assert 1 <= len(w.called(session, "toil")) <= 2
    row = r.decision(session, found, 2)
    assert (row.restarts, row.error.partition(":")[0]) == (0, "WorkTimeout")


def test_heartbeats_give_it_more_time(env: dict[str, str], processes: Processes, session: Session) -> None:
    # P3: of a call that takes longer than its work timeout.
    preferences.configure("toil", {"work_timeout": "10s"})
    processes.celery_worker(env, concurrency=1)
    processes.scheduler(env)
    found = start(w.crowd, ["beat"])
    _ends(session, found, "FINISHED")
    assert w.called(session, "toil") == ["beat"]
    assert r.decision(session, found, 2).restarts == 0


def test_a_call_that_kills_its_worker(env: dict[str, str], processes: Processes, session: Session) -> None:
    # R2: the others of its batch are done, and it is broken after `max_restarts`.
    processes.celery_worker(env, concurrency=1)
    processes.scheduler(env)
    found = start(w.crowd, ["x"] * 5 + ["poison"] + ["x"] * 5)
    _ends(session, found, "BROKEN")
    wait_until(lambda: list(r.tasks(session, found).values()).count(TaskState.FINISHED) == 11, SECONDS)
    assert list(r.broken(session, found)) == [7]
    calls = w.called(session, "toil")
    assert 4 <= calls.count("poison") <= 5, "once in a batch, and then alone"


def test_a_call_that_fails(env: dict[str, str], processes: Processes, session: Session) -> None:
    # P9
    processes.celery_worker(env, concurrency=1)
    processes.scheduler(env)
    found = start(w.crowd, ["x", "bad", "y"])
    _ends(session, found, "BROKEN")
    assert w.called(session, "toil").count("bad") == 3
    wait_until(lambda: list(r.tasks(session, found).values()).count(TaskState.FINISHED) == 3, SECONDS)
    assert r.broken(session, found) == {3: ("RuntimeError", "failed on purpose")}
    assert len(r.recorded(session, found, 3)) == 3


def test_the_time_of_a_process_is_over_while_its_tasks_go_on(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    # P7
    preferences.configure("crowd", {"process_timeout": "1s"})
    preferences.configure("toil", {"work_timeout": "10min"})
    processes.celery_worker(env, concurrency=1)
    processes.scheduler(env)
    found = start(w.crowd, ["gate:"] * 2)
    wait_until(lambda: str(r.state(session, found)) == "BROKEN", SECONDS)
    assert r.process(session, found).error.startswith("ProcessTimeout")
    assert r.broken(session, found) == {}
    w.open_gate(session)
    _ends(session, found, "FINISHED")
    assert r.process(session, found).error is None
