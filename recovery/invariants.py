"""What must be true of the data at any moment, whatever broke: each a query that finds the rows that violate it.

The tests that break things on purpose check the list, and `tidemill doctor` runs it on real data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.jobs.model import Job, JobLog, JobState, Outcome
from triggers.definition import queue_of
from triggers.model import LIVE, ReactiveLeaf, ReactiveTask, RunKind, RunState, TaskRun


@dataclass(frozen=True)
class Violation:
    invariant: str
    examples: tuple[int, ...]


def _running(state: JobState) -> sa.ColumnElement[bool]:
    return Job.state == state


def _of_task(*conditions: Any) -> sa.Select[Any]:
    """Runs with their tasks."""
    return sa.select(TaskRun.id).join(ReactiveTask, ReactiveTask.name == TaskRun.task).where(*conditions)


_RUNS, _WAITS = TaskRun.state == RunState.RUNNING, TaskRun.state == RunState.WAITING

#: Of reactive runs and their tasks.
OF_RUNS: dict[str, sa.Select[Any]] = {
    "a run has a pass exactly while it runs": sa.select(TaskRun.id).where(
        sa.or_(TaskRun.pass_key.is_not(None) != _RUNS, TaskRun.recovery_time.is_not(None) != _RUNS)
    ),
    "a running run says who has it": sa.select(TaskRun.id).where(
        _RUNS, sa.or_(TaskRun.claimed_by.is_(None), TaskRun.claimed_at.is_(None))
    ),
    "a task has at most one live run": sa.select(sa.func.max(TaskRun.id))
    .where(LIVE)
    .group_by(TaskRun.task)
    .having(sa.func.count() > 1),
    "a run that ended says when, and no other does": sa.select(TaskRun.id).where(TaskRun.ended_at.is_not(None) == LIVE),
    "a run is that of a task": sa.select(TaskRun.id).where(~sa.exists().where(ReactiveTask.name == TaskRun.task)),
    "a run was made by a generation that the task has had": _of_task(TaskRun.generation > ReactiveTask.generation),
    "a run that was done was checked before": sa.select(TaskRun.id).where(
        TaskRun.state == RunState.DONE, sa.or_(TaskRun.checked.is_(None), TaskRun.started_at.is_(None))
    ),
    "what waits, waits in the pool of its task": _of_task(
        _WAITS, TaskRun.queue != sa.literal(queue_of("")) + ReactiveTask.pool
    ),
    "nothing waits of a task that was removed": _of_task(_WAITS, ReactiveTask.removed_at.is_not(None)),
    "a task in quarantine starts nothing": _of_task(
        LIVE, TaskRun.kind == RunKind.REGULAR, ReactiveTask.quarantined_at.is_not(None)
    ),
    "a task rests on at least one parameter": sa.select(ReactiveTask.id).where(
        ~sa.exists().where(ReactiveLeaf.task_id == ReactiveTask.id)
    ),
}

#: Of jobs.
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
ALL = INVARIANTS | OF_RUNS


def check(session: Session, examples: int = 5) -> list[Violation]:
    found = []
    for name, query in ALL.items():
        ids = tuple(session.execute(query.limit(examples)).scalars())
        if ids:
            found.append(Violation(name, ids))
    return found
