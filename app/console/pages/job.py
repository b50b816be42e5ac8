"""A job: its signature, its attempts, who has it, its executions; and what may be done about it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from app.clock import moment
from app.console.web.page import REASON, Act, Done, Input, Page, Question, Undo, Visit
from app.db import transaction
from app.errors import BadRequest, NotFound
from app.jobs import operate
from app.jobs.model import JOB, JOB_LOG, JobState
from app.near import shown

#: Of the executions, and of the text of arguments, errors and results.
ENTRIES, TEXT = 50, 20_000
_TEXTS = ("args", "kwargs", "error", "traceback", "result")
_PRIORITY_MOST = 32767


def _columns(table: sa.Table) -> list[Any]:
    """Long texts cut by the database; JSON as the text that it is, which may be more than can be read."""
    return [
        sa.func.left(sa.cast(column, sa.Text), TEXT + 1).label(column.name) if column.name in _TEXTS else column
        for column in table.c
    ]


def _job(job_id: int) -> Any:
    with transaction() as session:
        return session.execute(sa.select(*_columns(JOB)).where(JOB.c.id == job_id)).one_or_none()


def _shown(visit: Visit) -> Mapping[str, Any]:
    job_id = visit.numbers["job_id"]
    latest = sa.select(*_columns(JOB_LOG)).where(JOB_LOG.c.job_id == job_id).order_by(JOB_LOG.c.id.desc())
    job = _job(job_id)
    with transaction() as session:
        entries = session.execute(latest.limit(ENTRIES)).all()
    if job is None and not entries:
        raise NotFound(f"no job {job_id}: neither in the queue nor in the log")
    of = job if job is not None else entries[0]
    waits = job is not None and job.state == JobState.WAITING
    return {
        "job_id": job_id,
        "job": job,
        "of": of,
        "entries": entries,
        "priority": -of.rank,
        "may": {
            "cancel": job is not None and job.state != JobState.RUNNING,
            "wait": waits,
            "retry": job is not None and (job.state == JobState.PARKED or (waits and job.not_before is not None)),
        },
    }


def home(job_id: int) -> str:
    return f"/jobs/{job_id}"


def _there(visit: Visit) -> Any:
    job_id = visit.numbers["job_id"]
    if (found := _job(job_id)) is None:
        raise NotFound(f"job {job_id} is not in the queue any more")
    return found


def _is(job: Any) -> str:
    return f"{job.task:.200} in the queue {job.queue:.200}, {job.state}."


def _ask_cancel(visit: Visit) -> Question:
    job = _there(visit)
    says = [_is(job), "It leaves the queue; its log says so, and from there it can be put in again, as a new job."]
    obstacle = "It runs: wait for its end." if job.state == JobState.RUNNING else None
    title = f"Cancel job {job.id}?"
    return Question(title, says, "Cancel it", [REASON], danger=True, obstacle=obstacle, back=home(job.id))


def _cancel(visit: Visit) -> Done:
    job_id = visit.numbers["job_id"]
    entry = operate.cancel(job_id, reason=visit.form.text("reason"))
    undo = None if entry is None else Undo("rerun_job", {"entry_id": entry}, "Put it in again")
    return Done(f"Job {job_id} is cancelled.", home(job_id), undo)


def _only_waiting(job: Any) -> str | None:
    return None if job.state == JobState.WAITING else f"It is {job.state}: only a waiting job can."


def _ask_snooze(visit: Visit) -> Question:
    job = _there(visit)
    until = Input("until", "Until", "", hint="A span from now such as 2h, or 2026-07-01T12:00:00Z.", required=True)
    says = [_is(job), "It starts then, not before."]
    title = f"When may job {job.id} start?"
    return Question(title, says, "Snooze", [until, REASON], obstacle=_only_waiting(job), back=home(job.id))


def _snooze(visit: Visit) -> Done:
    job = _there(visit)
    try:
        until = moment(visit.form.needed("until"))
    except ValueError as error:
        raise BadRequest(str(error)) from None
    operate.snooze(job.id, until, reason=visit.form.text("reason"))
    before = max((each for each in (job.due_at, job.not_before) if each is not None), default=datetime.now(UTC))
    undo = Undo("snooze_job", {"job_id": job.id, "until": before.isoformat()})
    return Done(f"Job {job.id} is snoozed.", home(job.id), undo)


def _ask_priority(visit: Visit) -> Question:
    job = _there(visit)
    number = Input("priority", "Priority", str(-job.rank), hint="Larger runs first; 0 is usual.", required=True)
    title = f"Priority of job {job.id}"
    return Question(title, [_is(job)], "Set", [number, REASON], obstacle=_only_waiting(job), back=home(job.id))


def _prioritize(visit: Visit) -> Done:
    job = _there(visit)
    number = visit.form.number("priority", -_PRIORITY_MOST, _PRIORITY_MOST)
    if number is None:
        raise BadRequest(f"priority={shown('')} must be a whole number")
    operate.prioritize(job.id, number, reason=visit.form.text("reason"))
    undo = Undo("prioritize_job", {"job_id": job.id, "priority": -job.rank})
    return Done(f"Job {job.id} has priority {number}.", home(job.id), undo)


def _ask_retry(visit: Visit) -> Question:
    job = _there(visit)
    obstacle = "It runs now." if job.state == JobState.RUNNING else None
    says = [_is(job), "It is tried at once, with all its attempts anew."]
    title = f"Try job {job.id} again?"
    return Question(title, says, "Try again", [REASON], obstacle=obstacle, back=home(job.id))


def _retry(visit: Visit) -> Done:
    job_id = visit.numbers["job_id"]
    operate.retry(job_id, reason=visit.form.text("reason"))
    return Done(f"Job {job_id} is tried again.", home(job_id))


PAGES = (Page("job", "/jobs/{job_id}", "job.html", _shown),)
ACTS = (
    Act("cancel_job", "/jobs/{job_id}/cancel", _ask_cancel, _cancel),
    Act("snooze_job", "/jobs/{job_id}/snooze", _ask_snooze, _snooze),
    Act("prioritize_job", "/jobs/{job_id}/priority", _ask_priority, _prioritize),
    Act("retry_job", "/jobs/{job_id}/retry", _ask_retry, _retry),
)
