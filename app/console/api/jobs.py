"""Jobs: put in by the names of their tasks, looked at, cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from app import audit
from app.console.api.bodies import ID, PRIORITY
from app.console.api.plain import plain, words
from app.console.endpoint import PREFIX, Answer, Asked, Endpoint
from app.console.schemas import (
    ANY,
    INTEGER,
    LIST,
    MOMENT,
    OBJECT,
    TEXT,
    TIME,
    WORDS,
    Schema,
    listing,
    optional,
    record,
    time_of,
    word,
)
from app.db import transaction
from app.errors import NotFound
from app.jobs import operate, outside, stored
from app.jobs.enqueue import ATTEMPTS_LIMIT
from app.jobs.model import JOB, JOB_LOG, Job, JobLog, JobState, Outcome
from app.jobs.outside import Wanted
from app.tokens import Action

#: Of one call, and of the executions that are shown.
JOBS_MOST, LOG_MOST = 1000, 100
#: Of the error of an execution: the whole of it is in the log.
ERROR_MOST = 10_000
_FIELDS: dict[str, Schema] = {
    "task": WORDS,
    "args": LIST,
    "kwargs": OBJECT,
    "queue": optional(WORDS),
    "key": optional(WORDS),
    "eta": TIME,
    "priority": PRIORITY,
    "expires": TIME,
    "max_attempts": optional({**INTEGER, "minimum": 1, "maximum": ATTEMPTS_LIMIT}),
}
JOB_WANTED = record("task", **_FIELDS)
JOBS_WANTED = record("jobs", jobs=listing(JOB_WANTED, JOBS_MOST, 1))
OF_JOB: dict[str, Schema] = {
    "id": ID,
    "state": word(*JobState),
    "task": TEXT,
    "queue": TEXT,
    "key": optional(TEXT),
    "priority": INTEGER,
    "args": ANY,
    "kwargs": ANY,
    "attempts": INTEGER,
    "max_attempts": INTEGER,
    "enqueued_at": MOMENT,
    "due_at": optional(MOMENT),
    "not_before": optional(MOMENT),
    "expires_at": optional(MOMENT),
    "error": optional(TEXT),
}
OF_ENTRY: dict[str, Schema] = {
    "id": ID,
    "task": TEXT,
    "queue": TEXT,
    "attempt": INTEGER,
    "outcome": word(*Outcome),
    "worker": optional(TEXT),
    "started_at": optional(MOMENT),
    "ended_at": MOMENT,
    "error": optional(TEXT),
}
JOB_SHOWN = record(
    *("job", "log", "result"),
    job=optional(record(*OF_JOB, **OF_JOB)),
    log=listing(record(*OF_ENTRY, **OF_ENTRY), LOG_MOST),
    result=ANY,
)


def _wanted(given: Mapping[str, Any]) -> Wanted:
    times = {name: time_of(name, given[name]) for name in ("eta", "expires") if name in given}
    return Wanted(**{**given, **times})


def _put(asked: Asked, given: list[Mapping[str, Any]]) -> list[int]:
    return [*outside.put([_wanted(each) for each in given], lambda queue: asked.allow(Action.ENQUEUE, queue))]


def _enqueue(asked: Asked) -> Answer:
    return Answer({"job_id": _put(asked, [asked.body])[0]})


def _enqueue_many(asked: Asked) -> Answer:
    return Answer({"job_ids": _put(asked, asked.body["jobs"])})


def _show(asked: Asked) -> Answer:
    job_id = asked.path["job_id"]
    plainly = [JOB.c[name] for name in OF_JOB if name in JOB.c and name not in ("args", "kwargs")]
    texts = [sa.cast(JOB.c[name], sa.Text).label(name) for name in ("args", "kwargs")]
    entry = [JOB_LOG.c[name] for name in OF_ENTRY if name != "error"]
    error = sa.func.left(JOB_LOG.c.error, ERROR_MOST).label("error")
    latest = sa.select(*entry, error).where(JOB_LOG.c.job_id == job_id).order_by(JOB_LOG.c.id.desc()).limit(LOG_MOST)
    with transaction() as session:
        row = session.execute(sa.select(*plainly, *texts, JOB.c.rank).where(JOB.c.id == job_id)).one_or_none()
        entries = session.execute(latest).all()
        if row is None and not entries:
            raise NotFound(f"no job {job_id}: neither in the queue nor in the log")
        asked.allow(Action.READ, entries[0].queue if row is None else row.queue)
        found = [words(each, OF_ENTRY) for each in entries]
        result = None
        if entries:
            query = sa.select(sa.cast(JobLog.result, sa.Text)).where(JobLog.id == entries[0].id)
            result = stored.read(session.execute(query).scalar_one())
    job = None
    if row is not None:
        values = {"priority": -row.rank, "args": stored.read(row.args), "kwargs": stored.read(row.kwargs)}
        job = {name: plain(values[name] if name in values else getattr(row, name)) for name in OF_JOB}
    return Answer({"job": job, "log": found, "result": result})


def _cancel(asked: Asked) -> Answer:
    job_id = asked.path["job_id"]
    with transaction() as session:
        # Under lock: a newer job with the same key can bring it into another queue.
        query = sa.select(Job.queue).where(Job.id == job_id).with_for_update()
        queue = session.execute(query).scalar_one_or_none()
        if queue is not None:
            asked.allow(Action.ENQUEUE, queue)
        with audit.acting(f"{asked.holder.name}@http"):
            operate.cancel(job_id, session=session)
    return Answer({"cancelled": True})


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        f"{PREFIX}/jobs",
        "enqueue",
        "Puts a job in; with a key under which one waits, in the place of that one.",
        Action.ENQUEUE,
        _enqueue,
        {200: record("job_id", job_id=ID)},
        subject=None,
        body=JOB_WANTED,
        key="key",
        errors=(404, 422),
    ),
    Endpoint(
        "POST",
        f"{PREFIX}/jobs/batch",
        "enqueue_many",
        "Puts many jobs in, all of them or none.",
        Action.ENQUEUE,
        _enqueue_many,
        {200: record("job_ids", job_ids=listing(ID))},
        subject=None,
        body=JOBS_WANTED,
        errors=(404, 422),
    ),
    Endpoint(
        "GET",
        f"{PREFIX}/jobs/{{job_id}}",
        "job",
        "Shows a job and its executions, the latest first, and what the latest one came to.",
        Action.READ,
        _show,
        {200: JOB_SHOWN},
        subject=None,
        errors=(404,),
    ),
    Endpoint(
        "POST",
        f"{PREFIX}/jobs/{{job_id}}/cancel",
        "cancel",
        "Takes a waiting or parked job out of its queue.",
        Action.ENQUEUE,
        _cancel,
        {200: record("cancelled", cancelled={"type": "boolean", "enum": [True]})},
        subject=None,
        body=record(),
        errors=(404, 409),
    ),
)
