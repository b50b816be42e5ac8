"""Crash at every fault point of advance → evaluate → ring → claim → check → run → finish, and of the sweep: recovered
each time, no increment lost and none skipped, and what the task has seen last is right."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import faults, limits
from app.db import transaction
from recovery import invariants
from tests.kit import warehouse as w
from tests.kit.faults import EXIT_STATUS, die_at
from tests.kit.process import Processes
from tests.kit.waiting import wait_until

SECONDS = 300
#: Who dies at which point. `enqueue.*` is the transaction that makes a run, and rings after its commit.
EVALUATION = ("start.before_commit", "enqueue.before_commit", "enqueue.committed", "start.committed")
#: The service makes runs in its own transaction, which has its own points.
SERVICE = ("service.before_commit", "service.committed")
SWEEP = ("sweep.before_commit", "sweep.committed")
WORKER = (
    *("ring.before_publish", "ring.published", "ticket.received", "claim.before_commit", "claim.committed"),
    *("run.checked", "run.before_body", "run.after_body", "finish.before_commit", "finish.committed"),
)
#: Those of jobs alone: a run is claimed singly, so nothing of a claim is given back.
OF_JOBS = ("give_back.before_commit", "give_back.committed", "periodic.before_commit", "periodic.committed")
#: Of stages: tests/acceptance/test_stage_faults.py
OF_STAGES = ("visits.loaded", "visits.processed")
#: Of events: tests/acceptance/test_event_faults.py
OF_EVENTS = tuple(point for point in faults.POINTS if point.startswith("outbox."))
#: Of processes: tests/acceptance/test_process_faults.py
OF_PROCESSES = tuple(point for point in faults.POINTS if point.startswith(("process.", "task.", "operation.", "heal.")))


@pytest.fixture
def env(env: dict[str, str]) -> dict[str, str]:
    return env | {
        "TIDEMILL_MODULES": w.MODULES,
        "TIDEMILL_POLL_INTERVAL": "200ms",
        "TIDEMILL_SWEEP_INTERVAL": "200ms",
        "TIDEMILL_LEASE": "1s",
        "TIDEMILL_GRACE": "0s",
    }


def test_every_point_is_somebodys() -> None:
    others = OF_JOBS + OF_STAGES + OF_EVENTS + OF_PROCESSES
    assert set(EVALUATION + SERVICE + SWEEP + WORKER + others) == set(faults.POINTS)


def _all_is_well(session: Session) -> None:
    """Both tasks have come to the end of their data, by increments without gap; the exact one without overlap."""

    def at_rest() -> bool:
        live = sa.text("SELECT count(*) FROM tidemill.run WHERE state IN ('waiting', 'running')")
        seen = [w.last_seen(session, task) for task in ("exact", "plain", "mart")]
        return seen == [w.at(3)] * 3 and session.execute(live).scalar_one() == 0

    wait_until(at_rest, SECONDS, "all has been processed")
    for task in ("exact", "mart"):
        reached: int | None = None
        for since, until in w.steps(session, task, ended=True):
            assert since == reached, (task, w.steps(session, task))
            reached = until
        assert reached == 3
    # A task may have been begun more than once for the same news, and never for news that comes after a gap.
    done: int | None = None
    for since, until in w.steps(session, "plain", ended=True):
        assert since is None or (done is not None and since <= done), w.steps(session, "plain")
        done = until if done is None else max(done, until)
    assert done == 3
    assert invariants.check(session) == []


def _new_data() -> None:
    for task in ("exact", "plain"):
        w.load(task, 1)


def _more_data() -> None:
    for task in ("exact", "plain"):
        w.load(task, 3)


@pytest.mark.parametrize("point", [*EVALUATION, *WORKER])
def test_a_worker_dies(point: str, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path) -> None:
    """T16, T22: its evaluation at the end of a run included."""
    died = tmp_path / "died"
    if point == "claim.before_commit":
        # A claim of one statement has no moment before its commit; one under limits has.
        with transaction() as tx:
            limits.configure(tx, "reactive.default", max_parallel=5)
    worker = processes.celery_worker(env | die_at(point, died), concurrency=1)
    if point.startswith(("enqueue.", "ring.")):
        # Only a run that ends while there is news already makes the next one in the worker, and rings for it.
        _gated_twice(processes, env, session)
    processes.scheduler(env)
    _new_data()
    wait_until(died.exists, SECONDS, f"died at {point}: {worker.log}")
    if worker.status is not None:
        worker.start()
    _more_data()
    _all_is_well(session)


def _gated_twice(processes: Processes, env: dict[str, str], session: Session) -> None:
    w.load("gated", 1)
    scheduler = processes.scheduler(env)
    wait_until(lambda: w.calls(session, "gated") == 1, SECONDS)
    # It would be quicker than the worker now and then.
    scheduler.kill()
    w.load("gated", 2)
    w.open_gate("gated")


@pytest.mark.parametrize("point", [*EVALUATION[:-1], *SERVICE])
def test_the_scheduler_dies_while_it_evaluates(
    point: str, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    processes.celery_worker(env)
    _new_data()
    dying = processes.scheduler(env | die_at(point, tmp_path / "died"), ready=False)
    assert dying.wait(SECONDS) == EXIT_STATUS
    processes.scheduler(env)
    _more_data()
    _all_is_well(session)
    assert len(w.states(session, "exact")) <= 2


@pytest.mark.parametrize("point", SWEEP)
def test_the_scheduler_dies_while_it_sweeps(
    point: str, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    worker = processes.celery_worker(env | die_at("run.before_body", tmp_path / "worker"), concurrency=1)
    dying = processes.scheduler(env | die_at(point, tmp_path / "scheduler"))
    _new_data()
    assert dying.wait(SECONDS) == EXIT_STATUS, worker.log
    processes.scheduler(env)
    _more_data()
    _all_is_well(session)
    failures = sa.text("SELECT max(failures) FROM tidemill.reactive_task")
    assert session.execute(failures).scalar_one() == 0, "a run that ended well has reset them"
