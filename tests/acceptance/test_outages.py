"""What breaks around the jobs: workers frozen, the broker down, silent or wiped, Postgres gone for a moment."""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import doorbell, limits
from app.embedded import OwnServers
from app.jobs.model import Job, JobLog, Outcome
from tests.kit import rows, tasks
from tests.kit.database import make_durable
from tests.kit.process import Process, Processes
from tests.kit.waiting import wait_until
from tidemill import enqueue, enqueue_many, transaction, wait

QUICK = {"TIDEMILL_LEASE": "1s", "TIDEMILL_SWEEP_INTERVAL": "200ms"}


def test_a_late_worker_changes_nothing_and_says_that_it_lost(
    env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    """J3: frozen past its recovery_time, the job is another's; when it wakes up, nothing of it is saved."""
    env = env | QUICK
    frozen = processes.celery_worker(env, concurrency=1, name="frozen")
    told = tmp_path / "told"
    job_id = enqueue(tasks.stay_for.s(str(told), "late"))
    wait_until(lambda: rows.executions(session) == [("stay_for", "late")])
    frozen.stop()
    processes.scheduler(env)
    wait_until(lambda: Outcome.LOST in rows.outcomes(session, job_id))
    told.touch()
    processes.celery_worker(env | {"TIDEMILL_LEASE": "1min"}, concurrency=1, name="second")
    assert wait(job_id, 300).outcome is Outcome.DONE
    before = rows.outcomes(session)
    frozen.cont()
    frozen.wait_for("lost the claim|claim lost|the lease ends")
    frozen.terminate()
    frozen.wait()
    assert rows.outcomes(session) == before == [Outcome.LOST, Outcome.DONE]
    done = session.execute(sa.select(JobLog.worker).where(JobLog.outcome == Outcome.DONE)).scalar_one()
    assert done is not None
    assert done.startswith("second@")


def test_what_a_dead_child_held_does_not_wait_for_its_lease(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    """The lease is a minute; the parent knows at once."""
    worker = processes.celery_worker(env, concurrency=1)
    job_id = enqueue(tasks.sleep_for.s(60, "long"))
    wait_until(lambda: len(rows.executions(session)) == 1)
    for child in worker.children():
        Process.kill_one(child)
    overdue = sa.select(Job.id).where(Job.id == job_id, Job.recovery_time <= sa.func.now())

    def put_forward() -> bool:
        session.rollback()
        return session.execute(overdue).one_or_none() is not None

    wait_until(put_forward, 300)


def test_work_in_a_transaction_of_its_job_is_not_saved_late(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    """J3: `this_job().transaction()` commits only under a claim that holds."""
    job_id = enqueue(tasks.steal_then_commit.s("stolen"))
    worker = processes.celery_worker(env, concurrency=1)
    worker.wait_for("is not ours any more")
    assert rows.executions(session) == []
    assert rows.state(session, job_id) == "running", "the thief's claim stands"


def test_a_broker_that_comes_back_empty_loses_no_work(
    env: dict[str, str], processes: Processes, session: Session, servers: OwnServers
) -> None:
    """R12 for jobs: tickets are worth nothing."""
    processes.celery_worker(env)
    processes.scheduler(env)
    wait(enqueue(tasks.record.s("before")), 300)
    servers.broker.wipe()
    committed = [enqueue(tasks.record.s(number)) for number in range(20)]
    servers.broker.start()
    for job_id in committed:
        assert wait(job_id, 300).outcome is Outcome.DONE
    assert sorted(rows.outcomes(session)) == [Outcome.DONE] * 21


def test_postgres_restarts_under_work(
    env: dict[str, str], processes: Processes, session: Session, servers: OwnServers
) -> None:
    """Workers, scheduler and beat come back by themselves; work that ends meanwhile waits to be saved."""
    make_durable(session)
    worker = processes.celery_worker(env)
    processes.scheduler(env)
    beat = processes.beat(env)
    slow = enqueue(tasks.stand_still.s(1.5))
    wait_until(lambda: rows.state(session, slow) == "running")
    session.close()
    servers.postgres.kill()
    servers.postgres.start()
    assert wait(slow, 300).outcome is Outcome.DONE
    assert wait(slow, 1).attempt == 1, "it was not run again"
    assert wait(enqueue(tasks.record.s("after")), 60).outcome is Outcome.DONE
    assert worker.status is None
    assert beat.status is None


#: Whoever waits for a broker does so for seconds.
WAITED = 0.5


def _seconds(action: Callable[[], object], times: int = 60) -> float:
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        action()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _commit_one() -> None:
    with transaction() as session:
        enqueue(tasks.noop.s(), session=session)


def test_no_request_waits_for_a_broker(env: dict[str, str], servers: OwnServers, session: Session) -> None:
    """Down, or silent: enqueue commits as fast as before, in bounded memory."""
    _commit_one()
    doorbell.flush(60)
    up = _seconds(_commit_one)
    try:
        servers.broker.pause()
        silent = _seconds(_commit_one)
        servers.broker.resume()
        servers.broker.kill()
        down = _seconds(_commit_one)
        tracemalloc.start()
        before = tracemalloc.take_snapshot()
        for _ in range(300):
            _commit_one()
        grown = sum(entry.size_diff for entry in tracemalloc.take_snapshot().compare_to(before, "filename"))
    finally:
        tracemalloc.stop()
        servers.broker.start()
    assert silent < max(4 * up, WAITED), (silent, up)
    assert down < max(4 * up, WAITED), (down, up)
    assert grown < 200_000, f"300 commits left {grown} bytes behind"
    assert rows.count(session, Job) == 1 + 3 * 60 + 300


def test_workers_stop_in_good_order(
    env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    """J8: after SIGTERM nothing new begins; what runs ends, what was claimed goes back uncharged."""
    worker = processes.celery_worker(env | {"TIDEMILL_GRACE": "2min"}, concurrency=1)
    told = tmp_path / "told"
    quick = [enqueue(tasks.record.s(number)) for number in range(3)]
    for job_id in quick:
        wait(job_id, 300)
    with transaction() as tx:
        slow = enqueue(tasks.stay_for.s(str(told), "slow"), session=tx, priority=1)
        enqueue_many([tasks.record.s("later") for _ in range(5)], session=tx)
    wait_until(lambda: ("stay_for", "slow") in rows.executions(session))
    worker.terminate()
    worker.wait_for("Warm shutdown")
    told.touch()
    assert worker.wait() == 0
    assert rows.outcomes(session, slow) == [Outcome.DONE]
    session.rollback()
    left = session.execute(sa.select(Job.state, Job.attempts)).all()
    assert left == [("waiting", 0)] * 5


def test_what_outlasts_the_grace_is_handed_back(env: dict[str, str], processes: Processes, session: Session) -> None:
    worker = processes.celery_worker(env | {"TIDEMILL_GRACE": "500ms"}, concurrency=1)
    job_id = enqueue(tasks.sleep_for.s(60, "long"))
    wait_until(lambda: rows.executions(session) == [("sleep_for", "long")])
    worker.terminate()
    assert worker.wait() == 0
    assert rows.outcomes(session, job_id) == [Outcome.INTERRUPTED]
    job = rows.job(session, job_id)
    assert job is not None
    assert (job.state, job.attempts) == ("waiting", 0)


def test_drain_ends_when_nothing_is_ready(env: dict[str, str], processes: Processes, session: Session) -> None:
    enqueue_many([tasks.record.s(number) for number in range(30)])
    enqueue(tasks.record.s("tomorrow"), eta=86400)
    worker = processes.celery_worker(env, options=["--drain"])
    assert worker.wait() == 0
    assert len(rows.executions(session)) == 30
    assert rows.count(session) == 1


def test_drain_works_off_what_limits_hold_back(env: dict[str, str], processes: Processes, session: Session) -> None:
    with transaction() as tx:
        limits.configure(tx, "jobs", rate="2/s")
    enqueue_many([tasks.record.s(number) for number in range(5)])
    worker = processes.celery_worker(env, options=["--drain"])
    assert worker.wait() == 0
    assert len(rows.executions(session)) == 5


def test_other_pools_than_prefork_are_refused(env: dict[str, str], processes: Processes) -> None:
    worker = processes.celery(env, "worker", "-P", "threads", "-c", "2", name="threads")
    assert worker.wait() != 0
    assert "runs on the prefork pool" in worker.log
    assert "Traceback" not in worker.log
