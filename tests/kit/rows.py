"""What is in the database, in few words."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.jobs.model import Job, JobLog, JobState, KnownTask, Outcome

_EXECUTIONS = sa.text("SELECT task, value FROM public.execution ORDER BY id")


def executions(session: Session) -> list[tuple[str, str]]:
    """What the tasks of the kit did, in order: each attempt."""
    session.rollback()
    return [(row.task, row.value) for row in session.execute(_EXECUTIONS)]


def job(session: Session, job_id: int) -> Job | None:
    """As it is now; None when it has left the queue."""
    session.rollback()
    return session.get(Job, job_id)


def state(session: Session, job_id: int) -> JobState | None:
    found = job(session, job_id)
    return None if found is None else found.state


def outcomes(session: Session, job_id: int | None = None) -> list[Outcome]:
    """The log, in order; of one job or of all."""
    session.rollback()
    query = sa.select(JobLog.outcome).order_by(JobLog.id)
    return list(session.execute(query if job_id is None else query.where(JobLog.job_id == job_id)).scalars())


def count(session: Session, model: type = Job) -> int:
    session.rollback()
    return session.execute(sa.select(sa.func.count()).select_from(model)).scalar_one()


def known(session: Session, task: str) -> bool:
    """Whether a service has registered the task."""
    session.rollback()
    return session.get(KnownTask, task) is not None
