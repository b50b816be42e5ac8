"""What must be true of the data at any moment, whatever broke: each a query that finds the rows that violate it.

The tests that break things on purpose check the list, and `tidemill doctor` runs it on real data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.jobs.model import Job, JobLog, JobState, Outcome


@dataclass(frozen=True)
class Violation:
    invariant: str
    examples: tuple[int, ...]


def _running(state: JobState) -> sa.ColumnElement[bool]:
    return Job.state == state


INVARIANTS: dict[str, sa.Select[Any]] = {
    "a job has a pass exactly while it runs": sa.select(Job.id).where(
        sa.or_(
            _running(JobState.RUNNING) != Job.pass_key.is_not(None),
            _running(JobState.RUNNING) != Job.recovery_time.is_not(None),
        )
    ),
    "a running job says who has it": sa.select(Job.id).where(
        _running(JobState.RUNNING), sa.or_(Job.claimed_by.is_(None), Job.claimed_at.is_(None))
    ),
    "at most one waiting job has a key": sa.select(sa.func.max(Job.id))
    .where(_running(JobState.WAITING), Job.key.is_not(None))
    .group_by(Job.key)
    .having(sa.func.count() > 1),
    "a job that ended is not in the queue": sa.select(Job.id)
    .join(JobLog, JobLog.job_id == Job.id)
    .where(JobLog.outcome.in_([Outcome.DONE, Outcome.CANCELLED, Outcome.EXPIRED, Outcome.ABSORBED])),
    "a job ended well at most once": sa.select(JobLog.job_id)
    .where(JobLog.outcome == Outcome.DONE)
    .group_by(JobLog.job_id)
    .having(sa.func.count() > 1),
    "a pass is held by one queue": sa.select(sa.func.max(Job.id))
    .where(_running(JobState.RUNNING))
    .group_by(Job.pass_key)
    .having(sa.func.count(sa.distinct(Job.queue)) > 1),
}


def check(session: Session, examples: int = 5) -> list[Violation]:
    found = []
    for name, query in INVARIANTS.items():
        ids = tuple(session.execute(query.limit(examples)).scalars())
        if ids:
            found.append(Violation(name, ids))
    return found
