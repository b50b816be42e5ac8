"""`enqueue`: a Celery task handed over inside the producer's own transaction (J1): both commit, or neither does.

- `key`: at most one waiting job has it. Enqueued again while one waits, the newer call takes its place: its arguments,
  at the earlier of both times, with the higher of both priorities, under the same id. It does so by updating the row,
  so that no worker can take the older form before the newer transaction has ended.
- The doorbell rings after the commit, from a thread of its own; nothing here waits for a broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP
from sqlalchemy.orm import Session

from app import doorbell, faults
from app.db import joined
from app.errors import BadRequest, UnknownTask, Unsupported
from app.jobs import payload
from app.jobs.model import JOB, KEY_IS_TAKEN, Job, JobId

JOBS = "jobs"
#: The most that a priority, a delay or a number of attempts is read from the database as.
ATTEMPTS_LIMIT = 32767
Moment = datetime | timedelta | float | None


class Signature(Protocol):
    """What is used of a Celery signature."""

    @property
    def task(self) -> str | None: ...
    @property
    def args(self) -> Any: ...
    @property
    def kwargs(self) -> Any: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


class _Task(Protocol):
    name: str
    max_retries: int | None


#: Options of a signature that a durable job has its own words for, or cannot have; what to do instead.
_REFUSED = {
    "countdown": "pass eta= to enqueue, as seconds or a datetime",
    "eta": "pass eta= to enqueue",
    "expires": "pass expires= to enqueue",
    "link": "enqueue the next task inside this one, in this_job().transaction()",
    "link_error": "handle the failure in the task, or look for it in the job log",
    "chord": "use a process of deciders and actors",
    "group_id": "enqueue each task of the group with enqueue_many",
    "chain": "enqueue the next task inside this one, in this_job().transaction()",
    "reply_to": "read results from the job log",
    "task_id": "use key= and the job id",
}


def enqueue(
    signature: Signature,
    *,
    session: Session | None = None,
    queue: str | None = None,
    key: str | None = None,
    eta: Moment = None,
    priority: int | None = None,
    expires: Moment = None,
    max_attempts: int | None = None,
) -> JobId:
    """Puts a job in, with the commit of `session` or, without one, in a transaction of its own. Returns its id."""
    row = _row(signature, queue, key, eta, priority, expires, max_attempts)
    with joined(_checked(session)) as tx:
        return _insert(tx, row)


def enqueue_many(
    signatures: Iterable[Signature],
    *,
    session: Session | None = None,
    queue: str | None = None,
    eta: Moment = None,
    priority: int | None = None,
    expires: Moment = None,
) -> list[JobId]:
    """Puts many jobs in with one statement for each thousand; ids in order. They have no key."""
    rows = [_row(signature, queue, None, eta, priority, expires, None) for signature in signatures]
    with joined(_checked(session)) as tx:
        return _insert_many(tx, rows)


def _checked(session: Session | None) -> Session | None:
    if session is not None and not isinstance(session, Session):
        raise BadRequest(
            f"session must be an sqlalchemy.orm.Session, not {type(session).__name__}; "
            f"asynchronous programs enqueue with the SQL function tidemill.enqueue"
        )
    return session


def _row(
    signature: Signature,
    queue: str | None,
    key: str | None,
    eta: Moment,
    priority: int | None,
    expires: Moment,
    max_attempts: int | None,
) -> dict[str, Any]:
    task = task_of(signature)
    options = signature.options
    if options:
        for option, instead in _REFUSED.items():
            if options.get(option):
                raise Unsupported(f"{task.name}: a durable job cannot have {option}: {instead}")
    args, kwargs = payload.arguments(task.name, signature.args, signature.kwargs)
    due_at, delay = payload.moment("eta", eta)
    expires_at, lifetime = payload.moment("expires", expires)
    if priority is None:
        priority = options.get("priority") or 0
    return {
        "queue": payload.name("queue", queue) if queue is not None else queue_of(task, options),
        "task": task.name,
        "args": args,
        "kwargs": kwargs,
        "key": None if key is None else payload.name("key", key),
        "rank": payload.rank_of(priority),
        "max_attempts": attempts_of(task, max_attempts),
        "due_at": due_at,
        "delay": delay,
        "expires_at": expires_at,
        "lifetime": lifetime,
    }


def task_of(signature: Signature) -> Any:
    """The registered task, which knows its queue and how often it may be tried."""
    if not hasattr(signature, "task") or not hasattr(signature, "args"):
        raise BadRequest(f"{signature!r} is not a Celery signature: write send_mail.s(…)")
    if type(signature).__name__ not in ("Signature", "_Signature") and "type" not in dir(signature):
        raise Unsupported(f"{signature!r} cannot be a job")
    if getattr(signature, "subtask_type", None) is not None:
        raise Unsupported(f"a {signature.subtask_type} cannot be a job: enqueue its tasks one by one")  # type: ignore[attr-defined]
    try:
        return signature.type  # type: ignore[attr-defined]
    except KeyError:
        raise UnknownTask(
            f"no task named {signature.task!r} is registered: import its module, or name it in TIDEMILL_MODULES"
        ) from None


def queue_of(task: Any, options: Mapping[str, Any]) -> str:
    """Where Celery's own words say so: the call's, then the task's; else `jobs`."""
    queue = options.get("queue") or getattr(task, "queue", None)
    return JOBS if queue is None else payload.name("queue", str(queue))


def attempts_of(task: _Task, asked: int | None = None) -> int:
    if asked is None:
        retries = task.max_retries
        return ATTEMPTS_LIMIT if retries is None else max(1, min(ATTEMPTS_LIMIT, int(retries) + 1))
    if type(asked) is not int or not 1 <= asked <= ATTEMPTS_LIMIT:
        raise BadRequest(f"max_attempts={asked!r} must be a whole number from 1 to {ATTEMPTS_LIMIT}")
    return asked


def _insert(session: Session, row: dict[str, Any]) -> JobId:
    job_id = session.execute(_one(), row).scalar_one()
    _ring_after_commit(session, row["queue"], row["task"])
    return JobId(job_id)


def insert_rows(session: Session, rows: list[dict[str, Any]]) -> None:
    """For jobs whose words were checked when they were first given."""
    for row in rows:
        _insert(session, row)


def _insert_many(session: Session, rows: list[dict[str, Any]], size: int = 1000) -> list[JobId]:
    ids: list[JobId] = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        columns = {name: [row[name] for row in part] for name in _MANY}
        times = {name: part[0][name] for name in ("due_at", "delay", "expires_at", "lifetime")}
        ids += session.execute(_many(), {**columns, **times}).scalars()
    for queue, task in {(row["queue"], row["task"]) for row in rows}:
        _ring_after_commit(session, queue, task)
    return ids


_TIME = TIMESTAMP(timezone=True)
_MANY: dict[str, sa.types.TypeEngine[Any]] = {
    "queue": sa.Text(),
    "task": sa.Text(),
    "args": sa.Text(),
    "kwargs": sa.Text(),
    "rank": sa.SmallInteger(),
    "max_attempts": sa.SmallInteger(),
}


def _due() -> dict[str, Any]:
    """The times of the database, to which spans are added there."""
    now = sa.func.now()
    return {
        "due_at": sa.func.coalesce(
            sa.bindparam("due_at", type_=_TIME), now + sa.bindparam("delay", type_=sa.Interval), now
        ),
        "expires_at": sa.func.coalesce(
            sa.bindparam("expires_at", type_=_TIME), now + sa.bindparam("lifetime", type_=sa.Interval)
        ),
    }


@cache
def _one() -> Any:
    json = postgresql.JSON
    insert = postgresql.insert(JOB).values(
        queue=sa.bindparam("queue", type_=sa.Text),
        task=sa.bindparam("task", type_=sa.Text),
        args=sa.cast(sa.bindparam("args", type_=sa.Text), json),
        kwargs=sa.cast(sa.bindparam("kwargs", type_=sa.Text), json),
        key=sa.bindparam("key", type_=sa.Text),
        rank=sa.bindparam("rank", type_=sa.SmallInteger),
        max_attempts=sa.bindparam("max_attempts", type_=sa.SmallInteger),
        **_due(),
    )
    return insert.on_conflict_do_update(
        index_elements=[Job.key], index_where=KEY_IS_TAKEN, set_=taking_its_place(insert.excluded)
    ).returning(Job.id)


def taking_its_place(newer: Any) -> dict[str, Any]:
    """How a newer call with the same key changes the job that waits."""
    return {
        "queue": newer.queue,
        "task": newer.task,
        "args": newer.args,
        "kwargs": newer.kwargs,
        "max_attempts": newer.max_attempts,
        "expires_at": newer.expires_at,
        "due_at": sa.func.least(Job.due_at, newer.due_at),
        "rank": sa.func.least(Job.rank, newer.rank),
    }


@cache
def _many() -> Any:
    rows = (
        sa.func.unnest(*(sa.bindparam(name, type_=ARRAY(kind)) for name, kind in _MANY.items()))
        .table_valued(*(sa.column(name, kind) for name, kind in _MANY.items()))
        .render_derived(name="rows")
    )
    json = postgresql.JSON
    times = _due()
    source = sa.select(
        rows.c.queue,
        rows.c.task,
        sa.cast(rows.c.args, json),
        sa.cast(rows.c.kwargs, json),
        rows.c.rank,
        rows.c.max_attempts,
        times["due_at"],
        times["expires_at"],
    )
    return postgresql.insert(JOB).from_select([*_MANY, "due_at", "expires_at"], source).returning(Job.id)


# The doorbell: rung once for each queue and task, after the outermost commit.

_BELLS = "tidemill.bells"


def _ring_after_commit(session: Session, queue: str, task: str) -> None:
    bells = session.info.get(_BELLS)
    if bells is None:
        bells = session.info[_BELLS] = {}
        event.listen(session, "before_commit", _before_commit)
        event.listen(session, "after_commit", _after_commit)
        event.listen(session, "after_rollback", _after_rollback)
    bells[queue] = task


def _before_commit(session: Session) -> None:
    if session.info.get(_BELLS):
        faults.reach("enqueue.before_commit")


def _after_commit(session: Session) -> None:
    # Releasing a savepoint comes here too, and commits nothing.
    if session.in_nested_transaction():
        return
    bells: dict[str, str] = session.info.get(_BELLS) or {}
    if bells:
        faults.reach("enqueue.committed")
    while bells:
        doorbell.ring(*bells.popitem())


def _after_rollback(session: Session) -> None:
    if not session.in_nested_transaction():
        (session.info.get(_BELLS) or {}).clear()
