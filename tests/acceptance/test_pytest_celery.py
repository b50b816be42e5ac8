"""pytest-celery's own fixtures on our application: workers are real, containers are local processes."""

from __future__ import annotations

from pytest_celery import CeleryTestSetup  # type: ignore[import-untyped]
from sqlalchemy.orm import Session

from app.jobs import JobId, Outcome, enqueue, wait
from tests.kit.rows import executions
from tests.kit.tasks import record


def test_the_workers_are_ready(celery_setup: CeleryTestSetup) -> None:
    assert len(celery_setup.worker_cluster) == 2
    for worker in celery_setup.worker_cluster:
        worker.assert_log_exists("ready.")
        assert worker.container.status == "running"
    assert celery_setup.backend_cluster is None


def test_a_job_that_a_ticket_announces_runs_once(celery_setup: CeleryTestSetup, session: Session) -> None:
    # J1 J2
    ended = wait(enqueue(record.s("ticketed")))
    assert (ended.outcome, ended.attempt) == (Outcome.DONE, 1)
    assert executions(session) == [("record", "ticketed")]


def test_a_restarted_worker_works_on(celery_setup: CeleryTestSetup, session: Session) -> None:
    for worker in celery_setup.worker_cluster:
        worker.restart()
    assert celery_setup.ready(docker=True)
    jobs: list[JobId] = [enqueue(record.s(i)) for i in range(5)]
    assert {wait(job).outcome for job in jobs} == {Outcome.DONE}
    assert sorted(executions(session)) == [("record", str(i)) for i in range(5)]


def test_a_killed_worker_leaves_its_work_to_the_other(celery_setup: CeleryTestSetup, session: Session) -> None:
    celery_setup.worker_cluster[0].kill()
    assert celery_setup.worker_cluster[0].container.status == "exited"
    jobs = [enqueue(record.s(i)) for i in range(3)]
    assert [wait(job).outcome for job in jobs] == [Outcome.DONE] * 3
    assert len(executions(session)) == 3
