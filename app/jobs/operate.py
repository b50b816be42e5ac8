"""What a person does with jobs and timetables by hand: as in `app.jobs.manage`, and audited in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import audit
from app.db import joined, transaction
from app.jobs import manage, schedules
from app.jobs.enqueue import Moment
from app.jobs.model import JobId, JobLog

#: The audit keeps so many of the ids that were named.
IDS_TOLD = 100


def cancel(job_id: int, *, reason: str | None = None, session: Session | None = None) -> int | None:
    """The id of the execution by which its log says so: by it, the job can be put in again."""
    with joined(session) as tx:
        manage.cancel(job_id, session=tx)
        last = sa.select(sa.func.max(JobLog.id)).where(JobLog.job_id == job_id)
        entry: int | None = tx.execute(last).scalar_one()
        audit.record(tx, "job.cancel", _subject(job_id), reason=reason)
        return entry


def snooze(job_id: int, until: Moment, *, reason: str | None = None) -> None:
    with transaction() as session:
        manage.snooze(job_id, until, session=session)
        audit.record(session, "job.snooze", _subject(job_id), reason=reason, until=str(until))


def prioritize(job_id: int, priority: int, *, reason: str | None = None) -> None:
    with transaction() as session:
        manage.prioritize(job_id, priority, session=session)
        audit.record(session, "job.priority", _subject(job_id), reason=reason, priority=priority)


def retry(job_id: int, *, reason: str | None = None) -> None:
    with transaction() as session:
        manage.retry(job_id, session=session)
        audit.record(session, "job.retry", _subject(job_id), reason=reason)


def rerun(log_ids: Sequence[int], *, reason: str | None = None) -> list[JobId]:
    """The new jobs."""
    with transaction() as session:
        new = manage.rerun(log_ids, session=session)
        told = {"jobs": len(new), "log_ids": list(log_ids)[:IDS_TOLD], "new": list(new)[:IDS_TOLD]}
        audit.record(session, "job.rerun", _subject(new[0]) if len(new) == 1 else "jobs", reason=reason, **told)
        return new


def pause_periodic(name: str, *, reason: str | None = None) -> None:
    _pause_periodic(name, "pause", paused=True, reason=reason)


def resume_periodic(name: str, *, reason: str | None = None) -> None:
    _pause_periodic(name, "resume", paused=False, reason=reason)


def _pause_periodic(name: str, action: str, *, paused: bool, reason: str | None) -> None:
    with transaction() as session:
        schedules.set_paused(name, paused=paused, session=session)
        audit.record(session, f"periodic.{action}", name, reason=reason)


def remove_periodic(name: str, *, reason: str | None = None) -> None:
    with transaction() as session:
        schedules.remove(name, session=session)
        audit.record(session, "periodic.remove", name, reason=reason)


def _subject(job_id: int) -> str:
    return f"job {job_id}"
