"""What may be done to waiting, parked and past jobs (J5, J9)."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.db import transaction
from app.errors import BadRequest, NotFound, WrongState
from app.jobs import (
    JobId,
    JobState,
    Outcome,
    cancel,
    endings,
    enqueue,
    prioritize,
    rerun,
    retry,
    snooze,
    wait,
)
from app.jobs.endings import Done, Failure
from app.jobs.manage import Ended
from app.jobs.model import Job, JobLog
from tests.kit.clock import FakeClock
from tests.kit.process_rows import waits_for_a_lock
from tests.kit.rows import count, job, outcomes, state
from tests.kit.tables import Table
from tests.kit.tasks import noop, record
from tests.kit.waiting import wait_until

CHANGES: list[Callable[[int], Any]] = [cancel, lambda i: snooze(i, 60), lambda i: prioritize(i, 5), retry]
NAMES = ["cancel", "snooze", "prioritize", "retry"]


def put(value: Any = 1, **words: Any) -> JobId:
    return enqueue(record.s(value), queue="check", **words)


def end(jobs: Table, *, failed: bool = False, again: timedelta | None = None, result: str | None = None) -> None:
    claim = jobs.take()
    with transaction() as tx:
        if failed:
            failure = Failure(
                "RuntimeError: no", "Traceback…", again, Outcome.FAILED if again is None else Outcome.RETRIED
            )
            assert endings.failed(tx, claim.pass_key, claim.rows[0], None, failure)
        else:
            assert endings.done(tx, claim.pass_key, [Done(claim.rows[0].id, 0.0, result)])


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
def test_a_running_job_is_left_alone(session: Session, jobs: Table, change: Callable[[int], Any]) -> None:
    job_id = put()
    jobs.take()
    with pytest.raises(BadRequest, match=rf"job {job_id} is running and cannot be"):
        change(job_id)
    assert state(session, job_id) is JobState.RUNNING


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
def test_an_unknown_job_is_not_found(session: Session, change: Callable[[int], Any]) -> None:
    with pytest.raises(NotFound, match="no job 12345 is in the queue"):
        change(12345)


def test_a_waiting_job_is_cancelled_and_the_log_says_so(session: Session, jobs: Table) -> None:
    # J9
    job_id = put()
    cancel(job_id)
    assert state(session, job_id) is None
    assert outcomes(session, job_id) == [Outcome.CANCELLED]
    assert jobs.take().rows == ()


def test_a_parked_job_can_be_cancelled(session: Session, jobs: Table) -> None:
    job_id = put()
    end(jobs, failed=True)
    cancel(job_id)
    assert outcomes(session, job_id) == [Outcome.FAILED, Outcome.CANCELLED]


@pytest.mark.parametrize("again", [None, timedelta(hours=1)])
def test_the_log_of_a_cancelled_job_has_no_execution(session: Session, jobs: Table, again: timedelta | None) -> None:
    # J5: not that of the last try.
    job_id = put()
    end(jobs, failed=True, again=again)
    cancel(job_id)
    words = (JobLog.worker, JobLog.started_at)
    tried, cancelled = session.execute(sa.select(*words, JobLog.attempt).order_by(JobLog.id)).all()
    assert None not in tuple(tried)
    assert tuple(cancelled) == (None, None, 1)


@pytest.mark.parametrize("first", ["claim", "cancel"])
def test_a_cancel_and_a_claim_do_not_both_win(session: Session, jobs: Table, engine: Engine, first: str) -> None:
    # Two connections, both orders.
    job_id = put()
    if first == "claim":
        jobs.take()
        with pytest.raises(BadRequest):
            cancel(job_id)
    else:
        with Session(engine) as other:
            cancel(job_id, session=other)
            assert jobs.take().rows == ()
            other.commit()
        assert jobs.take().rows == ()


def test_a_cancel_in_a_transaction_that_is_rolled_back_did_nothing(session: Session, engine: Engine) -> None:
    job_id = put()
    with Session(engine) as other:
        cancel(job_id, session=other)
        other.rollback()
    assert state(session, job_id) is JobState.WAITING
    assert outcomes(session) == []


def test_snoozing_sets_the_time_earlier_and_later(session: Session, jobs: Table) -> None:
    # J9
    job_id = put()
    snooze(job_id, timedelta(hours=1))
    assert jobs.take().rows == ()
    at = datetime(2031, 1, 1, tzinfo=UTC)
    snooze(job_id, at)
    found = job(session, job_id)
    assert found is not None
    assert found.due_at == at
    snooze(job_id, -1)
    assert len(jobs.take().rows) == 1


@pytest.mark.parametrize("until", [timedelta(seconds=-1), timedelta(minutes=2)])
def test_snoozing_a_job_in_backoff_sets_its_time_too(session: Session, jobs: Table, until: timedelta) -> None:
    job_id = put()
    end(jobs, failed=True, again=timedelta(hours=1))
    snooze(job_id, until)
    found = job(session, job_id)
    assert found is not None
    assert found.not_before is None
    assert len(jobs.take().rows) == (until < timedelta(0))


@pytest.mark.parametrize("until", [None, "tomorrow", datetime(2030, 1, 1)])  # noqa: DTZ001
def test_snoozing_needs_a_time(session: Session, until: Any) -> None:
    with pytest.raises(BadRequest):
        snooze(put(), until)


def test_another_priority_changes_the_order(session: Session, jobs: Table) -> None:
    # J9
    first, second = put(), put()
    prioritize(second, 5)
    assert [row.id for row in (jobs.take().rows + jobs.take().rows)] == [second, first]
    with pytest.raises(BadRequest, match="priority"):
        prioritize(first, 99999)


def test_a_parked_job_is_tried_again_with_all_its_attempts(session: Session, jobs: Table) -> None:
    job_id = put()
    end(jobs, failed=True)
    assert state(session, job_id) is JobState.PARKED
    retry(job_id)
    found = job(session, job_id)
    assert found is not None
    assert (found.state, found.attempts, found.error) == (JobState.WAITING, 0, None)
    assert len(jobs.take().rows) == 1


def test_a_job_in_backoff_is_tried_at_once(session: Session, jobs: Table) -> None:
    job_id = put()
    end(jobs, failed=True, again=timedelta(hours=1))
    assert jobs.take().rows == ()
    retry(job_id)
    assert [row.id for row in jobs.take().rows] == [job_id]


@pytest.mark.parametrize("eta", [None, timedelta(days=1)])
def test_a_job_that_has_not_failed_is_not_tried_again(session: Session, jobs: Table, eta: timedelta | None) -> None:
    job_id = put(eta=eta)
    before = job(session, job_id)
    assert before is not None
    due = before.due_at
    with pytest.raises(WrongState, match=f"job {job_id} has not failed, it waits for its time: snooze sets another"):
        retry(job_id)
    assert job(session, job_id).due_at == due  # type: ignore[union-attr]


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_retry_and_a_new_call_with_its_key(session: Session, jobs: Table, engine: Engine, ends: str) -> None:
    """The call is in a transaction that was open when the retry looked, and in which the retry waits for it."""
    old = put(key="k")
    end(jobs, failed=True)
    with Session(engine) as other, Session(engine) as own, ThreadPoolExecutor(1) as threads:
        new = put(key="k", session=other)
        own.execute(sa.text("CREATE TABLE kept (id int)"))
        trying = threads.submit(retry, old, session=own)
        wait_until(lambda: waits_for_a_lock(session))
        getattr(other, ends)()
        if ends == "commit":
            with pytest.raises(WrongState, match=f"^job {new} waits with the same key 'k': cancel one of them$"):
                trying.result(60)
        else:
            trying.result(60)
        own.commit()
    assert session.execute(sa.text("SELECT to_regclass('kept') IS NOT NULL")).scalar_one(), "the caller goes on"
    assert state(session, old) is (JobState.PARKED if ends == "commit" else JobState.WAITING)


def test_a_parked_job_waits_behind_a_newer_one_with_its_key(session: Session, jobs: Table) -> None:
    old = put(key="k")
    end(jobs, failed=True)
    new = put(key="k")
    with pytest.raises(BadRequest, match=f"job {new} waits with the same key 'k'"):
        retry(old)
    cancel(new)
    retry(old)
    assert state(session, old) is JobState.WAITING


def test_past_jobs_are_put_in_again_with_all_they_had(session: Session, jobs: Table) -> None:
    # J5
    first = put("one", priority=4, key="k", max_attempts=2)
    end(jobs)
    put("two")
    end(jobs, failed=True)
    log = list(session.execute(sa.select(JobLog.id).order_by(JobLog.id)).scalars())
    again = rerun(log)
    rows = [job(session, each) for each in again]
    assert [(row.args, row.rank, row.max_attempts, row.queue) for row in rows if row] == [
        (["one"], -4, 2, "check"),
        (["two"], 0, 4, "check"),
    ]
    assert first not in again
    assert rerun([]) == []


def test_all_past_jobs_that_are_named_are_put_in_again_or_none(session: Session, jobs: Table) -> None:
    put()
    end(jobs)
    there = session.execute(sa.select(JobLog.id)).scalar_one()
    with pytest.raises(NotFound, match=r"^the log has no execution 998, 999$"):
        rerun([999, there, 998])
    with transaction() as tx, pytest.raises(NotFound):
        rerun([there, 999], session=tx)
    assert count(session) == 0
    assert len(rerun([there, there])) == 1


@pytest.mark.parametrize("log_ids", ["12", b"12", None, 5, ["1"], [None], [True], [0], [2**63], [1.0]])
def test_what_are_no_ids_of_the_log_is_refused(session: Session, log_ids: Any) -> None:
    with pytest.raises(BadRequest, match=r"is no list of ids of the log|is not the id of an execution"):
        rerun(log_ids)


# Waiting for an end.


def test_wait_says_how_it_ended(session: Session, jobs: Table) -> None:
    job_id = put()
    end(jobs, result='{"n": 1}')
    ended = wait(job_id, 0)
    assert (ended.job_id, ended.outcome, ended.result, ended.error, ended.attempt) == (
        job_id,
        Outcome.DONE,
        {"n": 1},
        None,
        1,
    )


def test_wait_goes_on_while_the_job_is_tried_again(session: Session, jobs: Table) -> None:
    job_id = put()
    end(jobs, failed=True, again=timedelta(0))
    with pytest.raises(TimeoutError, match=f"job {job_id} is still waiting after 3 s"):
        wait(job_id, 3, clock=FakeClock())
    end(jobs, failed=True)
    ended = wait(job_id, 0)
    assert (ended.outcome, ended.error, ended.attempt) == (Outcome.FAILED, "RuntimeError: no", 2)


def test_wait_after_a_retry_waits_for_the_next_end(session: Session, jobs: Table) -> None:
    job_id = put()
    end(jobs, failed=True)
    retry(job_id)
    with pytest.raises(TimeoutError):
        wait(job_id, timedelta(seconds=1), clock=FakeClock())


def test_wait_for_what_never_was_is_an_error_at_once(session: Session) -> None:
    clock = FakeClock()
    with pytest.raises(NotFound, match="no job 777"):
        wait(777, 30, clock=clock)
    assert clock.now < 1031


def test_wait_answers_of_a_parked_job_whose_log_is_gone(session: Session, jobs: Table) -> None:
    job_id = put()
    end(jobs, failed=True)
    session.execute(sa.delete(JobLog))
    session.commit()
    ended = wait(job_id, 0)
    parked = job(session, job_id)
    assert parked is not None
    assert ended == Ended(job_id, Outcome.FAILED, None, "RuntimeError: no", 1, parked.claimed_at)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [float("nan"), "5", None, True, [], -math.inf])
def test_wait_refuses_what_is_no_time(session: Session, timeout: Any) -> None:
    with pytest.raises(BadRequest, match=r"^timeout: .* is not a duration"):
        wait(put(), timeout)


def test_wait_may_be_for_ever(session: Session, jobs: Table) -> None:
    job_id = put()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait, job_id, math.inf)
        end(jobs)
        assert waiting.result(60).outcome is Outcome.DONE


def test_wait_sees_an_end_that_comes_later(session: Session, jobs: Table) -> None:
    job_id = put()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait, job_id, 60)
        end(jobs)
        assert waiting.result(60).outcome is Outcome.DONE


def test_wait_paces_itself(session: Session) -> None:
    clock = FakeClock()
    with pytest.raises(TimeoutError):
        wait(enqueue(noop.s()), 10, clock=clock)
    assert clock.slept[0] == pytest.approx(0.01)
    assert max(clock.slept) <= 0.25
    assert sum(clock.slept) == pytest.approx(10)
    assert len(clock.slept) < 60


def test_the_columns_of_a_job_are_all_there(session: Session) -> None:
    assert {"queue", "state", "due_at", "rank", "pass_key", "recovery_time"} <= set(Job.__table__.columns.keys())


@pytest.mark.parametrize("job_id", ["x", None, 0, 2**63, True])
@pytest.mark.parametrize("change", [cancel, retry, wait, lambda id_: snooze(id_, 5), lambda id_: prioritize(id_, 1)])
def test_what_is_no_id_is_refused(session: Session, change: Any, job_id: Any) -> None:
    with pytest.raises(BadRequest, match="is not the id of a job"):
        change(job_id)
