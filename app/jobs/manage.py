"""What an operator or a program may do to jobs: look, wait, cancel, snooze, try again, put past ones in again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app import doorbell
from app.clock import Clock, SystemClock, duration
from app.db import joined, transaction
from app.errors import BadRequest, NotFound, WrongState
from app.jobs import endings, payload
from app.jobs.enqueue import Moment, ring_after_commit
from app.jobs.model import KEY_INDEX, Job, JobId, JobLog, JobState, Outcome

FINAL = (Outcome.DONE, Outcome.CANCELLED, Outcome.EXPIRED, Outcome.ABSORBED, Outcome.FAILED)
POLL_SECONDS, POLL_MOST_SECONDS = 0.01, 0.25


@dataclass(frozen=True)
class Ended:
    """How a job ended. `failed`: it is parked; for so long that the log has forgotten it, `ended_at` is when its
    last try began."""

    job_id: JobId
    outcome: Outcome
    result: Any
    error: str | None
    attempt: int
    ended_at: datetime


def cancel(job_id: int, *, session: Session | None = None) -> None:
    """Takes a waiting or parked job out of the queue; its log says so."""
    _checked(job_id)
    with joined(session) as tx:
        idle = sa.select(Job.id).where(Job.id == job_id, Job.state != JobState.RUNNING).with_for_update()
        if tx.execute(idle).one_or_none() is None:
            raise _not_so(tx, job_id, "cancelled", "wait for its end")
        endings.leave(tx, [job_id], Outcome.CANCELLED)


def snooze(job_id: int, until: Moment, *, session: Session | None = None) -> None:
    """A waiting job starts at `until`, not before: a datetime, or a span from now. Also one that waits in backoff."""
    at, span = payload.moment("until", until)
    if at is None and span is None:
        raise BadRequest("until=None says no time: give a datetime with a time zone, or a span")
    due: Any = at if at is not None else sa.func.now() + span
    with joined(session) as tx:
        _update_waiting(tx, job_id, "snoozed", due_at=due, not_before=None)


def prioritize(job_id: int, priority: int, *, session: Session | None = None) -> None:
    """A waiting job gets another place in its queue: larger runs first."""
    with joined(session) as tx:
        _update_waiting(tx, job_id, "given another priority", rank=payload.rank_of(priority))


def _checked(job_id: int) -> None:
    if type(job_id) is not int or not 0 < job_id < 2**63:
        raise BadRequest(f"{job_id!r} is not the id of a job, which is a whole number from 1")


def _update_waiting(tx: Session, job_id: int, verb: str, **values: Any) -> None:
    _checked(job_id)
    statement = (
        sa.update(Job)
        .where(Job.id == job_id, Job.state == JobState.WAITING)
        .values(**values)
        .returning(Job.id)
        .execution_options(synchronize_session=False)
    )
    if tx.execute(statement).one_or_none() is None:
        raise _not_so(tx, job_id, verb, "only a waiting job can")


def _not_so(tx: Session, job_id: int, verb: str, instead: str) -> BadRequest:
    state = tx.execute(sa.select(Job.state).where(Job.id == job_id)).scalar_one_or_none()
    if state is None:
        return NotFound(f"no job {job_id} is in the queue; 'tidemill job log --job {job_id}' shows whether it ended")
    return WrongState(f"job {job_id} is {state} and cannot be {verb}: {instead}")


def retry(job_id: int, *, session: Session | None = None) -> None:
    """A parked job, or one that waits in backoff, is tried now, with all its attempts anew."""
    _checked(job_id)
    wanted = (Job.id, Job.state, Job.key, Job.queue, Job.attempts, Job.not_before)
    with joined(session) as tx:
        job = tx.execute(sa.select(*wanted).where(Job.id == job_id).with_for_update()).one_or_none()
        if job is None or job.state == JobState.RUNNING:
            raise _not_so(tx, job_id, "tried again", "it runs now")
        if job.state == JobState.WAITING and job.attempts == 0 and job.not_before is None:
            raise WrongState(f"job {job_id} has not failed, it waits for its time: snooze sets another")
        if job.state == JobState.PARKED and job.key is not None and (other := _waiting_with(tx, job.key)) is not None:
            raise _key_is_taken(other, job.key)
        try:
            with tx.begin_nested():
                _try_again(tx, job_id)
        except IntegrityError as error:
            if getattr(getattr(error.orig, "diag", None), "constraint_name", None) != KEY_INDEX:
                raise
            # Enqueued by somebody whose transaction was open when we looked.
            raise _key_is_taken(_waiting_with(tx, job.key), job.key) from None
        ring_after_commit(tx, job.queue, doorbell.GENERIC)


def _try_again(tx: Session, job_id: int) -> None:
    tx.execute(
        sa.update(Job)
        .where(Job.id == job_id)
        .values(
            state=JobState.WAITING,
            attempts=0,
            not_before=None,
            due_at=sa.func.least(Job.due_at, sa.func.now()),
            error=None,
        )
        .execution_options(synchronize_session=False)
    )


def _waiting_with(tx: Session, key: str) -> int | None:
    return tx.execute(sa.select(Job.id).where(Job.key == key, Job.state == JobState.WAITING)).scalar_one_or_none()


def _key_is_taken(other: int | None, key: str) -> WrongState:
    whose = "another job" if other is None else f"job {other}"
    return WrongState(f"{whose} waits with the same key {key!r}: cancel one of them")


def rerun(log_ids: Sequence[int], *, session: Session | None = None) -> list[JobId]:
    """Puts past jobs in again, by the ids of their log: the same task, arguments, queue and priority, as new jobs. All
    of them, or none."""
    wanted = _log_ids(log_ids)
    copied = ("queue", "task", "args", "kwargs", "rank", "max_attempts")
    chosen = sa.select(*(getattr(JobLog, name) for name in copied)).where(JobLog.id.in_(wanted)).order_by(JobLog.id)
    statement = sa.insert(Job).from_select(list(copied), chosen).returning(Job.id, Job.queue)
    with joined(session) as tx:
        with tx.begin_nested():
            rows = tx.execute(statement).all()
            if len(rows) < len(wanted):
                there = set(tx.execute(sa.select(JobLog.id).where(JobLog.id.in_(wanted))).scalars())
                missing = [str(each) for each in wanted if each not in there]
                raise NotFound(f"the log has no execution {', '.join(missing)}")
        for queue in {row.queue for row in rows}:
            ring_after_commit(tx, queue, doorbell.GENERIC)
    return [JobId(row.id) for row in rows]


def _log_ids(given: Any) -> list[int]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise BadRequest(f"{given!r:.100} is no list of ids of the log: write rerun([1017, 1018])")
    found = list(given)
    for each in found:
        if type(each) is not int or not 0 < each < 2**63:
            raise BadRequest(f"{each!r:.100} is not the id of an execution, which is a whole number from 1")
    return sorted(set(found))


def wait(job_id: int, timeout: float | timedelta = 30.0, *, clock: Clock | None = None) -> Ended:
    """Waits for the end of a job and says how it ended; `TimeoutError` if it has not by then."""
    _checked(job_id)
    clock = clock or SystemClock()
    seconds = _seconds(timeout)
    end, pause = clock.monotonic() + seconds, POLL_SECONDS
    while True:
        with transaction() as session:
            ended = _ended(session, job_id)
            if ended is None and clock.monotonic() >= end:
                state = session.execute(sa.select(Job.state).where(Job.id == job_id)).scalar_one_or_none()
                if state is None:
                    raise NotFound(f"no job {job_id}: neither in the queue nor in the log")
                raise TimeoutError(f"job {job_id} is still {state} after {seconds:g} s")
        if ended is not None:
            return ended
        clock.sleep(min(pause, max(0.0, end - clock.monotonic())))
        pause = min(pause * 1.5, POLL_MOST_SECONDS)


def _seconds(timeout: Any) -> float:
    if timeout == math.inf:
        return math.inf
    try:
        return duration(timeout).total_seconds()
    except ValueError as error:
        raise BadRequest(f"timeout: {error}") from None


def _ended(session: Session, job_id: int) -> Ended | None:
    row = session.execute(
        sa.select(JobLog, Job.state)
        .outerjoin(Job, Job.id == JobLog.job_id)
        .where(JobLog.job_id == job_id)
        .order_by(JobLog.id.desc())
        .limit(1)
    ).one_or_none()
    if row is None:
        return _forgotten(session, job_id)
    entry: JobLog = row[0]
    state: JobState | None = row[1]
    if state is None and entry.outcome not in FINAL:
        return None
    if state is not None and state != JobState.PARKED:
        return None
    return Ended(JobId(job_id), entry.outcome, entry.result, entry.error, entry.attempt, entry.ended_at)


def _forgotten(session: Session, job_id: int) -> Ended | None:
    """Parked for longer than the log is kept."""
    wanted = (Job.error, Job.attempts, sa.func.coalesce(Job.claimed_at, Job.enqueued_at).label("tried_at"))
    job = session.execute(sa.select(*wanted).where(Job.id == job_id, Job.state == JobState.PARKED)).one_or_none()
    return None if job is None else Ended(JobId(job_id), Outcome.FAILED, None, job.error, job.attempts, job.tried_at)
