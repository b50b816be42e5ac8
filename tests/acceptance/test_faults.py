"""Crash at every fault point of enqueue → ring → claim → run → finish, one by one: recovered each time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from app import faults, limits
from app.db import transaction
from app.jobs import cancel, schedules
from app.jobs.model import Job, JobId, Outcome
from recovery import invariants
from tests.kit import rows, tasks
from tests.kit.faults import EXIT_STATUS, die_at
from tests.kit.process import Processes
from tests.kit.waiting import wait_until
from tidemill import enqueue, periodic, wait

QUICK = {"TIDEMILL_LEASE": "1s", "TIDEMILL_SWEEP_INTERVAL": "200ms", "TIDEMILL_GRACE": "0s"}

#: Who dies at which point: the program that enqueues, a child of the worker, the scheduler.
PRODUCER = ("enqueue.before_commit", "enqueue.committed", "ring.before_publish", "ring.published")
SCHEDULER = ("sweep.before_commit", "sweep.committed", "periodic.before_commit", "periodic.committed")
#: Jobs never reach them: tests/acceptance/test_reactive_faults.py, and those of the service.
REACTIVE = tuple(point for point in faults.POINTS if point.startswith(("start.", "service.")) or point == "run.checked")
#: Nor these: tests/acceptance/test_stage_faults.py
STAGES = tuple(point for point in faults.POINTS if point.startswith("visits."))
#: Nor these: tests/acceptance/test_event_faults.py
EVENTS = tuple(point for point in faults.POINTS if point.startswith("outbox."))
#: Nor these: tests/acceptance/test_process_faults.py
PROCESSES = tuple(point for point in faults.POINTS if point.startswith(("process.", "task.", "operation.", "heal.")))
_OTHERS = PRODUCER + SCHEDULER + REACTIVE + STAGES + EVENTS + PROCESSES
WORKER = tuple(point for point in faults.POINTS if point not in _OTHERS)

_PRODUCE = """
from app.doorbell import flush
from tests.kit import tasks
from tidemill import enqueue, transaction
with transaction() as session:
    enqueue(tasks.record.s("produced"), session=session)
flush(60)
"""


def _no_invariant_is_broken(session: Session) -> None:
    session.rollback()
    assert invariants.check(session) == []


def test_every_point_is_somebodys() -> None:
    assert set(_OTHERS + WORKER) == set(faults.POINTS)


@pytest.mark.parametrize("point", PRODUCER)
def test_the_producer_dies(
    point: str, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    """J1: its transaction is there as a whole, or not at all; what is there runs."""
    # J4: also where it died before it told anybody, and no scheduler runs.
    producer = processes.python(_PRODUCE, env | die_at(point, tmp_path / "died"), "producer")
    assert producer.wait() == EXIT_STATUS
    committed = 0 if point == "enqueue.before_commit" else 1
    assert rows.count(session) == committed
    processes.celery_worker(env)
    wait_until(lambda: rows.count(session) == 0)
    assert rows.executions(session) == [("record", "produced")] * committed
    _no_invariant_is_broken(session)


@pytest.mark.parametrize("point", WORKER)
def test_a_worker_dies(point: str, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path) -> None:
    """J3: whatever it had begun is done in the end, and its log says what happened."""
    env = env | QUICK
    died = tmp_path / "died"
    # A child that dies is noticed by its parent; a slow machine need not hold a claim by the second.
    worker = processes.celery_worker(env | {"TIDEMILL_LEASE": "1min"} | die_at(point, died), concurrency=1)
    processes.scheduler(env)
    if point == "claim.before_commit":
        limits_for_jobs()
    ids = [enqueue(tasks.record.s(number)) for number in range(3)]
    if point.startswith("give_back"):
        # What was claimed with a slow job and has not begun goes back after a second.
        ids = _measured_then_slow()
    wait_until(died.exists, 300)
    for job_id in ids:
        assert wait(job_id, 300).outcome is Outcome.DONE, worker.log
    assert {value for _, value in rows.executions(session)} >= {"0", "1", "2"}
    _no_invariant_is_broken(session)


def limits_for_jobs() -> None:
    """A claim of one statement has no moment before its commit; one under limits has."""
    with transaction() as session:
        limits.configure(session, "jobs", max_parallel=5)


def _measured_then_slow() -> list[JobId]:
    """Quick jobs make the next batch large; a slow one in it makes the rest wait."""
    first = [enqueue(tasks.record.s(number)) for number in range(3)]
    for job_id in first:
        wait(job_id, 300)
    with transaction() as tx:
        slow = enqueue(tasks.sleep_for.s(3, "slow"), session=tx, priority=1)
        return [*first, slow, *(enqueue(tasks.record.s(number), session=tx) for number in range(10, 15))]


@pytest.mark.parametrize("point", [point for point in SCHEDULER if point.startswith("sweep")])
def test_the_scheduler_dies_while_it_sweeps(
    point: str, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    env = env | QUICK
    job_id = enqueue(tasks.crash.s("once", str(tmp_path / "crashed")))
    processes.celery_worker(env | {"TIDEMILL_LEASE": "1min"}, concurrency=1)
    dying = processes.scheduler(env | die_at(point, tmp_path / "died"))
    assert dying.wait() == EXIT_STATUS
    processes.scheduler(env)
    assert wait(job_id, 300).outcome is Outcome.DONE
    assert rows.outcomes(session, job_id) == [Outcome.LOST, Outcome.DONE]
    _no_invariant_is_broken(session)


@pytest.mark.parametrize("point", [point for point in SCHEDULER if point.startswith("periodic")])
def test_the_scheduler_dies_while_it_fires(
    point: str, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    """J9: once per slot."""
    periodic(tasks.record.s("tick"), every=timedelta(days=1))
    dying = processes.scheduler(env | die_at(point, tmp_path / "died"))
    assert dying.wait() == EXIT_STATUS
    processes.scheduler(env)
    wait_until(lambda: rows.count(session) == 1)
    assert schedules.run_once().fired == 0, "the slot has been fired"
    session.rollback()
    cancel(session.query(Job.id).scalar())
    assert rows.count(session) == 0
