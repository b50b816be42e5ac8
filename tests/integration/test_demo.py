"""What the demo breaks by itself, and what it says of it."""

from __future__ import annotations

from typing import Any, cast

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.cli.demo import Demo
from app.jobs.model import Job, JobId, JobLog, Outcome
from tests.kit.tasks import noop
from tidemill import enqueue


class Worker:
    """In the place of the supervisor and of each of its children: is killed, and what holds it stays as it is."""

    def __init__(self) -> None:
        self.kills = 0
        self.pid: int | None = 1

    def named(self, _name: str) -> Worker:
        return self

    def kill(self) -> None:
        self.kills += 1


class Screen:
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.fixture
def demo(worker: Worker, screen: Screen, database_url: str, broker_url: str) -> Demo:
    found = Demo(cast(Any, worker), cast(Any, screen), "http://127.0.0.1:8081")
    found._strike_at = 0.0
    return found


def _claimed(session: Session) -> JobId:
    job_id = enqueue(noop.s())
    held = {
        "state": "running",
        "attempts": Job.attempts + 1,
        "pass_key": sa.func.gen_random_uuid(),
        "claimed_by": "worker-1@here/7.abc",
        "claimed_at": sa.func.now(),
        "recovery_time": sa.func.now() + sa.text("interval '1 hour'"),
    }
    session.execute(sa.update(Job).where(Job.id == job_id).values(held))
    session.commit()
    return job_id


def _ended(session: Session, job_id: JobId, outcome: Outcome) -> None:
    """It is claimed still, and its log tells of one more try."""
    session.execute(
        sa.insert(JobLog).from_select(
            ["job_id", "attempt", "outcome", "queue", "task", "args", "kwargs", "rank", "max_attempts", "enqueued_at"],
            sa.select(
                Job.id,
                Job.attempts,
                sa.literal(outcome, JobLog.outcome.type),
                *(Job.queue, Job.task, Job.args, Job.kwargs, Job.rank, Job.max_attempts, Job.enqueued_at),
            ).where(Job.id == job_id),
        )
    )
    session.commit()


def _last(screen: Screen) -> str:
    return [each for each in screen.said if "job " in each][-1]


def test_it_tells_of_a_job_that_was_lost_and_is_done(
    demo: Demo, worker: Worker, screen: Screen, session: Session
) -> None:
    job_id = _claimed(session)
    demo.look()
    assert f"is killed with -9, while it runs job {job_id}" in _last(screen)
    _ended(session, job_id, Outcome.LOST)
    demo.look()
    assert "is killed" in _last(screen), "it waits for the end"
    _ended(session, job_id, Outcome.DONE)
    demo.look()
    assert "lost its worker, was recovered and is done: try 1" in _last(screen)
    demo.look()
    assert worker.kills == 1


def test_a_job_that_fails_by_itself_proves_nothing(
    demo: Demo, worker: Worker, screen: Screen, session: Session
) -> None:
    job_id = _claimed(session)
    demo.look()
    for outcome in (Outcome.LOST, Outcome.RETRIED, Outcome.FAILED):
        assert f"while it runs job {job_id}" in _last(screen)
        _ended(session, job_id, outcome)
        demo.look()
    assert "was recovered and is parked, as it fails by itself: so once more" in _last(screen)
    worker.pid = 2
    demo.look()
    assert worker.kills == 2


def test_a_job_that_had_ended_was_not_lost(demo: Demo, worker: Worker, screen: Screen, session: Session) -> None:
    """It may end between the look at it and the kill; then it strikes once more."""
    first = _claimed(session)
    demo.look()
    _ended(session, first, Outcome.DONE)
    session.execute(sa.delete(Job))
    session.commit()
    demo.look()
    assert f"job {first} (tests.kit.tasks.noop) had ended before" in _last(screen)
    second = _claimed(session)
    for worker.pid in (1, None):  # it dies, and is dead
        demo.look()
        assert worker.kills == 1
    worker.pid = 2
    demo.look()
    assert (worker.kills, f"while it runs job {second}" in _last(screen)) == (2, True)
    _ended(session, second, Outcome.LOST)
    _ended(session, second, Outcome.DONE)
    demo.look()
    assert "was recovered and is done" in _last(screen)
