"""Looking into the queue and into the log, by page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.jobs.model import Job, JobLog, JobState, Outcome

MOST = 10_000


@dataclass(frozen=True)
class Filters:
    """Everything given must hold. Text in `error` and `arguments` is searched for as a part."""

    task: str | None = None
    queue: str | None = None
    outcome: Outcome | None = None
    state: JobState | None = None
    key: str | None = None
    job_id: int | None = None
    worker: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    error: str | None = None
    arguments: str | None = None
    before_id: int | None = None
    after_id: int | None = None


def _common(model: Any, filters: Filters) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = [
        getattr(model, name) == value
        for name in ("task", "queue", "key")
        if (value := getattr(filters, name)) is not None
    ]
    if filters.error is not None:
        found.append(model.error.icontains(filters.error, autoescape=True))
    if filters.arguments is not None:
        text = sa.cast(model.args, sa.Text) + " " + sa.cast(model.kwargs, sa.Text)
        found.append(text.contains(filters.arguments, autoescape=True))
    if filters.before_id is not None:
        found.append(model.id < filters.before_id)
    if filters.after_id is not None:
        found.append(model.id > filters.after_id)
    return found


def log_query(filters: Filters) -> sa.Select[JobLog]:
    found = _common(JobLog, filters)
    if filters.outcome is not None:
        found.append(JobLog.outcome == filters.outcome)
    if filters.job_id is not None:
        found.append(JobLog.job_id == filters.job_id)
    if filters.worker is not None:
        found.append(JobLog.worker.startswith(filters.worker, autoescape=True))
    if filters.since is not None:
        found.append(JobLog.ended_at >= filters.since)
    if filters.until is not None:
        found.append(JobLog.ended_at < filters.until)
    return sa.select(JobLog).where(*found)


def search_log(session: Session, filters: Filters, limit: int = 50) -> list[JobLog]:
    """The latest executions first."""
    query = log_query(filters).order_by(JobLog.ended_at.desc(), JobLog.id.desc()).limit(min(limit, MOST))
    return list(session.execute(query).scalars())


def job_query(filters: Filters) -> sa.Select[Job]:
    found = _common(Job, filters)
    if filters.state is not None:
        # As a word of the statement: the indexes of what is parked and what runs are chosen by it.
        found.append(Job.state == sa.literal_column(f"'{JobState(filters.state)}'"))
    if filters.job_id is not None:
        found.append(Job.id == filters.job_id)
    return sa.select(Job).where(*found)


def search_jobs(session: Session, filters: Filters, limit: int = 50) -> list[Job]:
    """What is in the queue now, the oldest first."""
    return list(session.execute(job_query(filters).order_by(Job.id).limit(min(limit, MOST))).scalars())


def last_of_each(session: Session, filters: Filters, limit: int = MOST) -> list[int]:
    """Of each job, its last execution that matches; the latest first."""
    matching = log_query(filters).subquery()
    last = sa.func.max(matching.c.id)
    query = sa.select(last).group_by(matching.c.job_id).order_by(last.desc()).limit(min(limit, MOST))
    return list(session.scalars(query))
