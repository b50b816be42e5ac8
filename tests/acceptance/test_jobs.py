"""Durable jobs through real workers, on every broker and Postgres that is there."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import db
from app.jobs.model import Job, JobLog, Outcome
from tests.conftest import child_environment
from tests.kit import rows, tasks
from tests.kit.process import Processes
from tests.kit.waiting import wait_until
from tidemill import enqueue, enqueue_many, transaction, wait


def test_jobs_run_on_every_broker(database_url: str, any_broker_url: str, processes: Processes) -> None:
    """The doorbell reaches a worker, whatever carries it."""  # J1 J2 J5
    worker = processes.celery_worker(child_environment(database_url, any_broker_url))
    with transaction() as session:
        ids = [enqueue(tasks.record.s(number), session=session) for number in range(20)]
    for job_id in ids:
        assert wait(job_id, 300).outcome is Outcome.DONE
    with Session(db.engine()) as session:
        assert sorted(rows.executions(session)) == sorted(("record", str(number)) for number in range(20))
    assert "tests.kit.tasks.record" in worker.log, "Celery shows the task under its own name"


def test_jobs_run_on_every_postgres(any_database_url: str, broker_url: str, processes: Processes) -> None:
    processes.celery_worker(child_environment(any_database_url, broker_url))
    ids = enqueue_many([tasks.record.s(number) for number in range(50)])
    kept = enqueue(tasks.flaky.s(2, "again"))
    for job_id in [*ids, kept]:
        assert wait(job_id, 300).outcome is Outcome.DONE
    with Session(db.engine()) as session:
        assert rows.outcomes(session, kept) == [Outcome.RETRIED, Outcome.RETRIED, Outcome.DONE]


def test_a_worker_alone_finds_what_nobody_rang_for(env: dict[str, str], processes: Processes, session: Session) -> None:
    """J4, J10: no beat, no scheduler, no bell: SQL from another program."""
    worker = processes.celery_worker(env)
    wait_until(lambda: rows.known(session, "tests.kit.tasks.record"))
    job_id = session.execute(sa.text("""select tidemill.enqueue('tests.kit.tasks.record', '["sql"]')""")).scalar_one()
    session.commit()
    assert wait(job_id, 300).outcome is Outcome.DONE
    assert "tidemill.work" in worker.log


def test_beat_alone_makes_every_pass(env: dict[str, str], processes: Processes, session: Session) -> None:
    """The MVP mode: a lost job comes back, with no scheduler there."""
    env |= {"TIDEMILL_LEASE": "1s", "TIDEMILL_SWEEP_INTERVAL": "500ms"}
    job_id = enqueue(tasks.record.s("lost"))
    session.execute(
        sa.update(Job).values(
            state="running",
            attempts=1,
            pass_key=sa.func.gen_random_uuid(),
            claimed_by="nobody/1",
            claimed_at=sa.func.now(),
            recovery_time=sa.func.now() - timedelta(seconds=1),
        )
    )
    session.commit()
    processes.celery_worker(env)
    processes.beat(env)
    assert wait(job_id, 300).outcome is Outcome.DONE
    assert rows.outcomes(session, job_id) == [Outcome.LOST, Outcome.DONE]


def test_the_best_of_a_queue_goes_first_whatever_its_task(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    """J2: the oldest first within a priority, across tasks."""
    enqueue(tasks.record.s("old"))
    enqueue(tasks.together.s("middle"))
    enqueue(tasks.record.s("first"), priority=5)
    enqueue(tasks.record.s("last"), priority=-5)
    enqueue(tasks.record.s("new"))
    processes.celery_worker(env, concurrency=1)
    wait_until(lambda: len(rows.executions(session)) == 5)
    assert [value for _, value in rows.executions(session)] == ["first", "old", "middle/1", "new", "last"]


def test_what_the_log_keeps(env: dict[str, str], processes: Processes, session: Session) -> None:
    """J5: who, when, how long, outcome, error and the signature with its arguments."""
    processes.celery_worker(env, concurrency=1, name="logged")
    job_id = enqueue(tasks.fail.s("x"))
    ended = wait(job_id, 300)
    assert ended.outcome is Outcome.FAILED
    entry = session.execute(sa.select(JobLog).where(JobLog.job_id == job_id)).scalar_one()
    assert entry.worker is not None
    assert re.fullmatch(r"logged@\S+/\d+\.[0-9a-f]{6}", entry.worker)
    assert entry.started_at is not None
    assert timedelta(0) < entry.ended_at - entry.started_at < timedelta(minutes=1)
    assert (entry.task, entry.args, entry.kwargs) == ("tests.kit.tasks.fail", ["x"], {})
    assert entry.error == "RuntimeError: failed on 'x'"
    assert entry.traceback is not None
    assert "in fail" in entry.traceback


@pytest.mark.parametrize(
    ("task", "outcomes"),
    [
        (tasks.asks_again.s(), [Outcome.RETRIED, Outcome.RETRIED, Outcome.FAILED]),
        (tasks.soft_limit.s(), [Outcome.DONE]),
        (tasks.too_long.s(), [Outcome.RETRIED, Outcome.FAILED]),
        (tasks.in_transaction.s("once"), [Outcome.DONE]),
    ],
    ids=["self.retry", "soft limit", "hard limit", "this_job().transaction()"],
)
def test_how_tasks_end(
    env: dict[str, str], processes: Processes, session: Session, task: object, outcomes: list[Outcome]
) -> None:
    processes.celery_worker(env, concurrency=1)
    processes.scheduler(env, ready=False)
    job_id = enqueue(task)  # type: ignore[arg-type]
    wait(job_id, 300)
    assert rows.outcomes(session, job_id) == outcomes


def test_one_bad_call_never_fails_its_batch(env: dict[str, str], processes: Processes, session: Session) -> None:
    values = ["a", "b", "bad", "c"]
    ids = enqueue_many([tasks.together.s(value) for value in values])
    processes.celery_worker(env, concurrency=1)
    ended = {value: wait(job_id, 300).outcome for value, job_id in zip(values, ids, strict=True)}
    assert ended == {"a": Outcome.DONE, "b": Outcome.DONE, "bad": Outcome.FAILED, "c": Outcome.DONE}


def test_a_task_that_kills_its_worker_is_parked_and_harms_no_other(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    """Only what dies alone is charged; after max_attempts it is parked."""
    env |= {"TIDEMILL_LEASE": "1s", "TIDEMILL_SWEEP_INTERVAL": "200ms"}
    poison = enqueue(tasks.crash.s("poison"))
    others = enqueue_many([tasks.record.s(number) for number in range(10)])
    processes.celery_worker(env, concurrency=1)
    processes.scheduler(env, ready=False)
    for job_id in others:
        assert wait(job_id, 300).outcome is Outcome.DONE
    assert wait(poison, 300).outcome is Outcome.LOST
    parked = rows.job(session, poison)
    assert parked is not None
    assert (parked.state, parked.attempts) == ("parked", 3)
