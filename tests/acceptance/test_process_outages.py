"""What breaks around processes: Postgres killed, the broker wiped, workers killed and stopped. All processes finish, no
task is accepted twice, and what was called more often was called under the same key."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.embedded import OwnServers
from processes import preferences, start
from tests.kit import process_rows as r
from tests.kit import process_world as w
from tests.kit.database import make_durable
from tests.kit.process import Process, Processes
from tests.kit.waiting import wait_until
from tidemill import transaction

SECONDS = 300
MANY = 100


@pytest.fixture
def env(env: dict[str, str], engine: Engine) -> dict[str, str]:
    w.create(engine)
    preferences.synchronize()
    for name in ("journey", "midway", "stride", "meet", "crowd", "toil"):
        preferences.configure(name, {"work_timeout": "5s"})
    return env | {"TIDEMILL_MODULES": w.MODULES, "TIDEMILL_SWEEP_INTERVAL": "200ms", "TIDEMILL_LEASE": "2s"}


def _start(count: int = MANY, first: int = 0) -> None:
    with transaction() as tx:
        for number in range(first, first + count):
            start(w.journey, number, session=tx)


def _going(session: Session, least: int = 20) -> None:
    wait_until(lambda: len(w.called(session, "stride")) > least, SECONDS, "they are in the middle of it")


def _all_finish(session: Session, log: str, count: int = MANY, more: int = 100) -> None:
    """`more`: that may have been called and not accepted: what was in work or waited to be accepted at that moment."""
    wait_until(lambda: r.unfinished(session) == 0, SECONDS, "all processes have finished")
    assert r.check(session) == {}, log
    values = [row.value for row in r.rows(session, "SELECT value FROM tidemill.process ORDER BY id")]
    assert values == [w.value_of(number) for number in range(count)]
    per_task = "SELECT count(DISTINCT key) AS keys, count(*) AS calls FROM called GROUP BY process_id, task"
    found = r.rows(session, per_task)
    assert len(found) == count * w.JOURNEY_TASKS
    assert {row.keys for row in found} == {1}
    assert sum(row.calls - 1 for row in found) <= more
    assert r.rows(session, "SELECT * FROM tidemill.broken_task") == []


def test_postgres_crashes(env: dict[str, str], processes: Processes, session: Session, servers: OwnServers) -> None:
    make_durable(session)
    worker, scheduler = processes.celery_worker(env), processes.scheduler(env)
    _start()
    _going(session)
    session.close()
    servers.postgres.kill()
    servers.postgres.start()
    _all_finish(session, worker.log)
    assert (worker.status, scheduler.status) == (None, None)


def test_the_broker_comes_back_empty(
    env: dict[str, str], processes: Processes, session: Session, servers: OwnServers
) -> None:
    # R12
    worker = processes.celery_worker(env)
    processes.scheduler(env)
    _start()
    _going(session)
    servers.broker.wipe()
    _start(10, first=MANY)
    servers.broker.start()
    _all_finish(session, worker.log, MANY + 10)


def test_a_worker_is_killed_with_its_children(env: dict[str, str], processes: Processes, session: Session) -> None:
    # R1: nobody is left to say so.
    first = processes.celery_worker(env)
    processes.scheduler(env)
    _start()
    _going(session)
    first.kill()
    second = processes.celery_worker(env)
    _all_finish(session, second.log)


def test_children_are_killed_one_after_the_other(env: dict[str, str], processes: Processes, session: Session) -> None:
    worker = processes.celery_worker(env)
    processes.scheduler(env)
    _start()
    for least in (20, 60, 100):
        _going(session, least)
        Process.kill_one(worker.children()[0])
    _all_finish(session, worker.log, more=300)
    assert worker.status is None


def test_a_worker_that_is_stopped_hands_back(env: dict[str, str], processes: Processes, session: Session) -> None:
    # J8 for tasks: at no charge, and at once.
    preferences.configure("toil", {"work_timeout": "10min"})
    worker = processes.celery_worker(env | {"TIDEMILL_GRACE": "300ms"}, concurrency=1)
    found = start(w.crowd, ["gate:", "x", "y"])
    wait_until(lambda: "gate:" in w.called(session, "toil"), SECONDS)
    worker.terminate()
    assert worker.wait() == 0
    rows = r.rows(session, "SELECT * FROM tidemill.decision WHERE number > 1 AND state <> 'FINISH'")
    assert {(row.state, row.restarts, row.failures, row.attempts) for row in rows} == {("QUEUED", 0, 0, 0)}
    assert r.check(session) == {}
    w.open_gate(session)
    second = processes.celery_worker(env, concurrency=1)
    wait_until(lambda: str(r.state(session, found)) == "FINISHED", SECONDS, second.log)
    assert w.called(session, "toil").count("gate:") == 2
    assert r.check(session) == {}


def test_what_ends_within_the_grace_is_kept(env: dict[str, str], processes: Processes, session: Session) -> None:
    # J8
    preferences.configure("toil", {"work_timeout": "10min"})
    worker = processes.celery_worker(env, concurrency=1)
    found = start(w.crowd, ["silent"])
    wait_until(lambda: w.called(session, "toil") == ["silent"], SECONDS)
    worker.terminate()
    assert worker.wait() == 0
    assert str(r.state(session, found)) == "FINISHED"
    assert w.called(session, "toil") == ["silent"]


def test_a_late_worker(env: dict[str, str], processes: Processes, session: Session, tmp_path: Path) -> None:
    # P5: frozen past its time; what it answers when it wakes up is taken if nobody else's was, and recorded if it was.
    preferences.configure("toil", {"work_timeout": "2s"})
    frozen = processes.celery_worker(env, concurrency=1, name="frozen")
    processes.scheduler(env)
    told = tmp_path / "told"
    silent = f"file:{told}"
    found = start(w.crowd, [silent, "gate:"])
    wait_until(lambda: w.called(session, "toil")[:1] == [silent], SECONDS)
    frozen.stop()
    # Whoever gets it next has time.
    preferences.configure("toil", {"work_timeout": "10min"})
    told.touch()
    # One waits at the gate, which it may come to first.
    second = processes.celery_worker(env, concurrency=2, name="second")
    wait_until(lambda: w.called(session, "toil").count(silent) >= 2, SECONDS)
    wait_until(lambda: r.decided(session, found, 2) == "FINISH", SECONDS)
    frozen.cont()
    w.open_gate(session)
    wait_until(lambda: str(r.state(session, found)) == "FINISHED", SECONDS, second.log)
    assert r.check(session) == {}
    assert r.task(session, found, 2).result == silent
