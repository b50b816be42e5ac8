"""What breaks around reactive tasks: workers killed, stopped or frozen, the broker wiped or silent, Postgres gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.embedded import OwnServers
from tests.kit import warehouse as w
from tests.kit.database import make_durable
from tests.kit.process import Process, Processes
from tests.kit.waiting import never_within, wait_until
from triggers import operate, polling

SECONDS = 300


@pytest.fixture
def env(env: dict[str, str]) -> dict[str, str]:
    return env | {
        "TIDEMILL_MODULES": w.MODULES,
        "TIDEMILL_POLL_INTERVAL": "200ms",
        "TIDEMILL_SWEEP_INTERVAL": "200ms",
        "TIDEMILL_LEASE": "5s",
    }


def _comes_to(session: Session, task: str, step: int) -> None:
    wait_until(lambda: w.last_seen(session, task) == w.at(step), SECONDS, f"{task} has seen step {step}")


def _begins(session: Session, task: str) -> None:
    wait_until(lambda: w.calls(session, task) >= 1, SECONDS, f"{task} has begun")


def test_a_child_that_is_killed_counts_as_a_failure(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    """T22: the same run is tried again, with the same increment; its parent knows before the lease ends."""
    worker = processes.celery_worker(env | {"TIDEMILL_LEASE": "1min"}, concurrency=1)
    processes.scheduler(env)
    w.load("gated", 1)
    _begins(session, "gated")
    for child in worker.children():
        Process.kill_one(child)
    wait_until(lambda: w.calls(session, "gated") == 2, SECONDS)
    assert w.of_task(session, "gated").failures == 1
    w.open_gate("gated")
    _comes_to(session, "gated", 1)
    assert w.steps(session, "gated") == [(None, 1), (None, 1)]
    assert w.states(session, "gated") == ["done"]
    assert w.of_task(session, "gated").failures == 0


def test_a_worker_that_is_killed(env: dict[str, str], processes: Processes, session: Session) -> None:
    """R1: nobody is left to say so; the lease ends. What came meanwhile is in the next attempt."""
    worker = processes.celery_worker(env, concurrency=1)
    processes.scheduler(env)
    w.load("gated", 1)
    _begins(session, "gated")
    worker.kill()
    w.load("gated", 2)
    w.open_gate("gated")
    processes.celery_worker(env | {"TIDEMILL_LEASE": "1min"}, concurrency=1)
    _comes_to(session, "gated", 2)
    assert w.steps(session, "gated") == [(None, 1), (None, 2)]
    assert w.states(session, "gated") == ["done"]


def test_a_task_that_kills_its_worker_is_quarantined(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    """T22: and harms no other."""
    processes.celery_worker(env, concurrency=1)
    processes.scheduler(env)
    w.load("poison", 1)
    w.load("exact", 1)
    wait_until(lambda: w.states(session, "poison") == ["failed"], SECONDS)
    _comes_to(session, "exact", 1)
    assert w.steps(session, "poison") == [(None, 1)] * 3
    task = w.of_task(session, "poison")
    assert task.quarantined_at is not None
    assert re.match(r"failed 3 times in a row: worker \S+ gave no sign of life in time", task.quarantine_reason)
    assert w.last_seen(session, "poison") is None
    assert never_within(lambda: w.calls(session, "poison") > 3, 0.6)
    operate.release(w.full_name("poison"))
    wait_until(lambda: w.calls(session, "poison") > 3, SECONDS)


def test_a_worker_that_is_stopped_hands_back(env: dict[str, str], processes: Processes, session: Session) -> None:
    """J8 for runs: at the end of the grace; it is no failure of the task."""
    worker = processes.celery_worker(env | {"TIDEMILL_GRACE": "300ms"}, concurrency=1)
    scheduler = processes.scheduler(env)
    w.load("gated", 1)
    _begins(session, "gated")
    scheduler.kill()
    worker.terminate()
    assert worker.wait() == 0
    assert "Traceback" not in worker.log
    assert w.states(session, "gated") == ["waiting"]
    assert w.of_task(session, "gated").failures == 0
    w.open_gate("gated")
    processes.celery_worker(env, concurrency=1)
    _comes_to(session, "gated", 1)
    assert w.steps(session, "gated") == [(None, 1), (None, 1)]


def test_a_run_that_ends_within_the_grace_is_kept(env: dict[str, str], processes: Processes, session: Session) -> None:
    worker = processes.celery_worker(env, concurrency=1)
    processes.scheduler(env)
    w.load("silent", 1)
    _begins(session, "silent")
    worker.terminate()
    assert worker.wait() == 0
    assert w.states(session, "silent") == ["done"]
    assert w.last_seen(session, "silent") == w.at(1)


def test_a_late_worker_changes_nothing(
    env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    """T11: frozen past its lease, the run is another's; nothing of it is saved, and it says so."""
    told = tmp_path / "told"
    env = env | {w.SILENT_UNTIL: str(told)}
    frozen = processes.celery_worker(env, concurrency=1, name="frozen")
    processes.scheduler(env)
    w.load("silent", 1)
    _begins(session, "silent")
    frozen.stop()
    wait_until(lambda: w.of_task(session, "silent").failures == 1, SECONDS)
    w.load("silent", 2)
    told.touch()
    processes.celery_worker(env | {"TIDEMILL_LEASE": "1min"}, concurrency=1, name="second")
    _comes_to(session, "silent", 2)
    before = w.states(session, "silent")
    frozen.cont()
    frozen.wait_for("lost the claim on")
    assert w.states(session, "silent") == before == ["done"]
    assert w.last_seen(session, "silent") == w.at(2)


def test_work_in_the_transaction_of_a_run_is_not_saved_late(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    """T11: `run.transaction()` commits only under a claim that holds; so nothing is done twice."""
    worker = processes.celery_worker(env, concurrency=1)
    w.load("stolen", 1)
    wait_until(lambda: w.registered(session, "stolen"), SECONDS)
    assert polling.run_once().started == 1
    worker.wait_for("is not ours any more")
    assert w.calls(session, "stolen") == 0
    assert w.last_seen(session, "stolen") is None
    processes.scheduler(env)
    _comes_to(session, "stolen", 1)
    assert w.steps(session, "stolen") == [(None, 1)]
    assert w.states(session, "stolen") == ["done"]


def test_a_broker_that_comes_back_empty(
    env: dict[str, str], processes: Processes, session: Session, servers: OwnServers
) -> None:
    """R12: what fires while it is away starts when it is there again."""
    processes.celery_worker(env)
    processes.scheduler(env)
    w.load("plain", 1)
    _comes_to(session, "plain", 1)
    servers.broker.wipe()
    w.load("plain", 2)
    w.load("exact", 2)
    wait_until(lambda: w.states(session, "exact") == ["waiting"], SECONDS)
    servers.broker.start()
    _comes_to(session, "plain", 2)
    _comes_to(session, "mart", 2)
    assert w.steps(session, "plain") == [(None, 1), (1, 2)]
    assert w.steps(session, "exact") == w.steps(session, "mart") == [(None, 2)]


def test_a_broker_that_is_silent_holds_up_no_end(
    env: dict[str, str], processes: Processes, session: Session, servers: OwnServers
) -> None:
    """What runs ends while nobody can be rung for; what is new for it is begun at once in the same child, or, where its
    ticket's time is over, when the broker speaks again."""
    processes.celery_worker(env, concurrency=1)
    processes.scheduler(env)
    w.load("gated", 1)
    _begins(session, "gated")
    servers.broker.pause()
    w.load("gated", 2)
    w.open_gate("gated")
    wait_until(lambda: w.last_seen(session, "gated"), SECONDS, "its end was saved")
    servers.broker.resume()
    w.load("gated", 3)
    _comes_to(session, "gated", 3)
    steps = w.steps(session, "gated")
    assert (steps[0], steps[-1][1]) == ((None, 1), 3)
    assert [since for since, _ in steps[1:]] == [until for _, until in steps[:-1]]


def test_postgres_is_killed_under_a_run(
    env: dict[str, str], processes: Processes, session: Session, servers: OwnServers
) -> None:
    """The run that works through it ends as if nothing had been; services come back by themselves."""
    make_durable(session)
    env |= {"TIDEMILL_LEASE": "2min"}
    worker = processes.celery_worker(env)
    scheduler, beat = processes.scheduler(env), processes.beat(env)
    w.load("silent", 1)
    wait_until(lambda: w.steps(session, "silent", ended=True), SECONDS, "it works without the database")
    session.close()
    servers.postgres.kill()
    servers.postgres.start()
    _comes_to(session, "silent", 1)
    assert w.steps(session, "silent") == [(None, 1)]
    assert w.states(session, "silent") == ["done"]
    w.load("exact", 1)
    _comes_to(session, "mart", 1)
    assert (worker.status, scheduler.status, beat.status) == (None, None, None)
    assert "Traceback" not in worker.log


def test_postgres_is_killed_under_a_run_that_needs_it(
    env: dict[str, str], processes: Processes, session: Session, servers: OwnServers
) -> None:
    make_durable(session)
    processes.celery_worker(env, concurrency=1)
    processes.scheduler(env)
    w.load("gated", 1)
    _begins(session, "gated")
    session.close()
    servers.postgres.kill()
    servers.postgres.start()
    w.load("gated", 2)
    w.open_gate("gated")
    _comes_to(session, "gated", 2)
    assert w.states(session, "gated") == ["done"]
    done = w.steps(session, "gated", ended=True)
    assert done[-1] == (None, 2)
    live = sa.text("SELECT count(*) FROM tidemill.run WHERE state IN ('waiting', 'running')")
    assert session.execute(live).scalar_one() == 0
