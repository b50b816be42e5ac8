"""The sweep over lost jobs where something stands in its way."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import claims, db
from app.claims import Cursor
from app.jobs.model import Job, Outcome
from recovery import jobs as lost_jobs
from tests.kit import rows, tasks
from tests.kit.waiting import wait_until
from tidemill import enqueue, enqueue_many


@pytest.fixture(autouse=True)
def _short_lease(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has been up for long."""
    monkeypatch.setattr("recovery.jobs.settings", lambda: type("S", (), {"lease": timedelta(0)}))


def _lose(session: Session) -> None:
    claims.take(Cursor(Job, "jobs"), 100, worker="w/1", lease=timedelta(milliseconds=1))
    overdue = sa.select(sa.func.bool_and(Job.recovery_time < sa.func.clock_timestamp())).where(Job.state == "running")
    wait_until(lambda: session.execute(overdue).scalar_one())
    session.rollback()


def test_two_lost_jobs_with_one_key(session: Session) -> None:
    """The newer takes the place of the older; neither holds up the others."""
    older = enqueue(tasks.record.s("older"), key="k")
    _lose(session)
    newer = enqueue(tasks.record.s("newer"), key="k")
    _lose(session)
    enqueue_many([tasks.record.s(number) for number in range(5)])
    _lose(session)
    assert newer != older
    report = lost_jobs.run_once()
    assert (report.lost, report.absorbed, report.blocked) == (6, 1, 0)
    assert rows.outcomes(session, older) == [Outcome.ABSORBED]
    assert rows.state(session, newer) == "waiting"
    assert lost_jobs.run_once().lost == 0, "a second sweep changes nothing"


def test_a_strangers_open_transaction_holds_up_its_own_key_only(session: Session) -> None:
    kept = enqueue(tasks.record.s("kept"), key="k")
    _lose(session)
    others = enqueue_many([tasks.record.s(number) for number in range(5)])
    _lose(session)
    with Session(db.engine()) as stranger:
        enqueue(tasks.record.s("newer"), key="k", session=stranger)
        report = lost_jobs.run_once()
        assert (report.lost, report.blocked) == (5, 1)
        assert rows.state(session, kept) == "running"
        stranger.rollback()
    assert lost_jobs.run_once().lost == 1
    assert rows.state(session, kept) == "waiting"
    assert {rows.state(session, job_id) for job_id in others} == {"waiting"}


def test_arguments_that_python_cannot_write_again_are_put_back_all_the_same(session: Session) -> None:
    job_id = enqueue(tasks.record.s("x"))
    session.execute(sa.text("UPDATE tidemill.job SET args = '[1e400]'"))
    session.commit()
    _lose(session)
    assert lost_jobs.run_once().lost == 1
    assert rows.outcomes(session, job_id) == [Outcome.LOST]
    session.rollback()
    assert session.execute(sa.text("SELECT args::text FROM tidemill.job_log")).scalar_one() == "[1e400]"


def test_what_is_parked_says_why(session: Session) -> None:
    # J5: whoever looks at it has to mend the cause.
    last, again = (enqueue(tasks.record.s("x"), max_attempts=attempts) for attempts in (1, 2))
    session.execute(sa.update(Job).values(alone=True))
    session.commit()
    for _ in range(2):
        _lose(session)
    report = lost_jobs.run_once()
    assert (report.lost, report.parked) == (2, 1)
    told = dict(session.execute(sa.select(Job.id, Job.error)).all())
    assert told == {last: "worker w/1 gave no sign of life in time", again: None}
