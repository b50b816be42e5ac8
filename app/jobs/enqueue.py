"""`enqueue`: a Celery task handed over inside the producer's own transaction (J1): both commit, or neither does.

- `key`: at most one waiting job has it. Enqueued again while one waits, the newer call takes its place: its arguments,
  at the earlier of both times, with the higher of both priorities, under the same id. It does so by updating the row,
  so that no worker can take the older form before the newer transaction has ended.
- The doorbell rings after the commit, from a thread of its own; nothing here waits for a broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.orm import Session, scoped_session

from app import doorbell, faults, tracing
from app.arrays import Array
from app.db import joined
from app.errors import BadRequest, UnknownTask, Unsupported
from app.jobs import payload
from app.jobs.batches import size_of
from app.jobs.model import JOB, KEY_IS_TAKEN, Job, JobId
from app.jobs.options import refuse_options
from app.registry import registry

log = logging.getLogger(__name__)

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


def enqueue(
    signature: Signature,
    *,
    session: Session | scoped_session[Session] | None = None,
    queue: str | None = None,
    key: str | None = None,
    eta: Moment = None,
    priority: int | None = None,
    expires: Moment = None,
    max_attempts: int | None = None,
) -> JobId:
    """Puts a job in, with the commit of `session` or, without one, in a transaction of its own. Returns its id."""
    wish = _Wish.of(queue, key, eta, priority, expires, max_attempts)
    facts = wish.facts(signature)
    row = wish.row(signature, facts)
    with joined(_checked(session)) as tx, tracing.put_in(row["task"], row["queue"]) as span:
        row["trace"] = span.traceparent
        return _insert(tx, row, facts.name)


def enqueue_many(
    signatures: Iterable[Signature],
    *,
    session: Session | scoped_session[Session] | None = None,
    queue: str | None = None,
    eta: Moment = None,
    priority: int | None = None,
    expires: Moment = None,
) -> list[JobId]:
    """Puts many jobs in with one statement for each thousand; ids in order. They have no key."""
    wish = _Wish.of(queue, None, eta, priority, expires, None)
    if isinstance(signatures, dict):
        raise BadRequest(f"{signatures!r} is one signature: give a list of them, or call enqueue")
    known: dict[str, _Facts] = {}
    rows, bells = [], {}
    for signature in signatures:
        name = getattr(signature, "task", "")
        if (facts := known.get(name)) is None:
            facts = known[name] = wish.facts(signature)
        row = wish.row(signature, facts)
        rows.append(row)
        bells[row["queue"]] = facts.name
    with joined(_checked(session)) as tx, tracing.put_in(f"{len(rows)} jobs", ", ".join(bells)) as span:
        ids = _insert_many(tx, rows, span.traceparent)
        for name, ticket in bells.items():
            ring_after_commit(tx, name, ticket)
        return ids


def _checked(session: Session | scoped_session[Session] | None) -> Session | None:
    if isinstance(session, scoped_session):
        return session()
    if session is not None and not isinstance(session, Session):
        raise BadRequest(
            f"session must be an sqlalchemy.orm.Session, not {type(session).__name__}; "
            f"asynchronous programs enqueue with the SQL function tidemill.enqueue"
        )
    return session


#: Celery's, of a call against the function's signature. None: the task is declared `typing=False`, or `@batched`.
Check = Callable[..., None] | None


class _Facts(NamedTuple):
    """What a call needs to know of a task; found once for many calls of it."""

    name: str
    queue: str
    max_attempts: int
    check: Check


@dataclass(frozen=True)
class _Wish:
    """What is the same for all jobs of one call of `enqueue` or `enqueue_many`."""

    queue: str | None
    key: str | None
    rank: int | None
    max_attempts: int | None
    times: dict[str, Any]

    @classmethod
    def of(
        cls,
        queue: str | None,
        key: str | None,
        eta: Moment,
        priority: int | None,
        expires: Moment,
        max_attempts: int | None,
    ) -> _Wish:
        due_at, delay = payload.moment("eta", eta)
        expires_at, lifetime = payload.moment("expires", expires)
        return cls(
            None if queue is None else queue_name(queue),
            None if key is None else payload.name("key", key),
            None if priority is None else payload.rank_of(priority),
            max_attempts,
            {"due_at": due_at, "delay": delay, "expires_at": expires_at, "lifetime": lifetime},
        )

    def facts(self, signature: Signature) -> _Facts:
        task = task_of(signature)
        attempts = attempts_of(task, self.max_attempts)
        return _Facts(task.name, queue_of(task, {}), attempts, check_of(task))

    def row(self, signature: Signature, facts: _Facts) -> dict[str, Any]:
        options = signature.options
        queue, rank = self.queue, self.rank
        if options:
            refuse_options(facts.name, options)
            queue = queue or (options.get("queue") and queue_name(options["queue"]))
            rank = payload.rank_of(options.get("priority") or 0) if rank is None else rank
        args, kwargs = arguments_of(facts.name, signature, facts.check)
        return {
            "queue": queue or facts.queue,
            "task": facts.name,
            "args": args,
            "kwargs": kwargs,
            "key": self.key,
            "rank": rank or 0,
            "max_attempts": facts.max_attempts,
            **self.times,
        }


def check_of(task: Any) -> Check:
    return getattr(task, "__header__", None) if task.typing and not size_of(task.run) else None


def arguments_of(task: str, signature: Signature, check: Check) -> tuple[str, str]:
    """As JSON text, if the function can be called so."""
    texts = payload.arguments(task, signature.args, signature.kwargs)
    if check is not None:
        try:
            check(*signature.args, **signature.kwargs)
        except TypeError as error:
            raise BadRequest(f"{task} cannot be called so: {error}") from None
    return texts


def task_of(signature: Signature) -> Any:
    """The registered task, which knows its queue and how often it may be tried."""
    if not isinstance(signature, dict) or not hasattr(signature, "options"):
        raise BadRequest(f"{signature!r} is not a Celery signature: write send_mail.s(…)")
    if getattr(signature, "subtask_type", None) is not None:
        raise Unsupported(f"a {signature.subtask_type} cannot be a job: enqueue its tasks one by one")  # type: ignore[attr-defined]
    try:
        task = signature.type  # type: ignore[attr-defined]
    except KeyError:
        raise UnknownTask(
            f"no task named {signature.task!r} is registered: import its module, or name it in TIDEMILL_MODULES"
        ) from None
    if task.name.startswith("__main__."):
        _warn_of_script(task.name)
    return task


@cache
def _warn_of_script(task: str) -> None:
    """Once: some program may work off its own queue."""
    log.warning(
        "%s is defined in the program itself, which workers do not import: its jobs wait for a worker that knows this "
        "name; define it in a module of TIDEMILL_MODULES",
        task,
    )


def queue_of(task: Any, options: Mapping[str, Any]) -> str:
    """Where Celery's own words say so: the call's, then the task's, then `task_routes`; else `jobs`."""
    hook = registry.hooks.get(task.name)
    queue = options.get("queue") or getattr(task, "queue", None) or (hook.queue if hook else _routed(task))
    return JOBS if queue is None else queue_name(queue)


def queue_name(queue: Any) -> str:
    """Celery takes a `kombu.Queue` wherever it takes a name."""
    return payload.name("queue", str.__str__(queue) if isinstance(queue, str) else getattr(queue, "name", queue))


def _routed(task: Any) -> Any:
    route = task.app.amqp.router.lookup_route(task.name) or {}
    return route.get("queue")


def attempts_of(task: _Task, asked: int | None = None) -> int:
    if asked is None:
        retries = task.max_retries
        return ATTEMPTS_LIMIT if retries is None else max(1, min(ATTEMPTS_LIMIT, int(retries) + 1))
    if type(asked) is not int or not 1 <= asked <= ATTEMPTS_LIMIT:
        raise BadRequest(f"max_attempts={asked!r} must be a whole number from 1 to {ATTEMPTS_LIMIT}")
    return asked


def _insert(session: Session, row: dict[str, Any], ticket: str) -> JobId:
    job_id = session.execute(_one(keyed=row["key"] is not None), row).scalar_one()
    ring_after_commit(session, row["queue"], ticket)
    return JobId(job_id)


def insert_rows(session: Session, rows: list[dict[str, Any]]) -> None:
    """For jobs whose words were checked when they were first given."""
    for row in rows:
        _insert(session, row, doorbell.GENERIC)


def _insert_many(session: Session, rows: list[dict[str, Any]], trace: str | None, size: int = 1000) -> list[JobId]:
    ids: list[JobId] = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        bound: dict[str, Any] = {name: part[0][name] for name in ("due_at", "delay", "expires_at", "lifetime")}
        for name in _MANY:
            column = [row[name] for row in part]
            same = name != "args" and column.count(column[0]) == len(column)
            bound |= {name: None if same else column, f"same_{name}": column[0] if same else None}
        ids += session.execute(_many(), {**bound, "trace": trace}).scalars()
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
def _one(*, keyed: bool) -> Any:
    json = postgresql.JSON
    insert = postgresql.insert(JOB).values(
        queue=sa.bindparam("queue", type_=sa.Text),
        task=sa.bindparam("task", type_=sa.Text),
        args=sa.cast(sa.bindparam("args", type_=sa.Text), json),
        kwargs=sa.cast(sa.bindparam("kwargs", type_=sa.Text), json),
        key=sa.bindparam("key", type_=sa.Text),
        rank=sa.bindparam("rank", type_=sa.SmallInteger),
        max_attempts=sa.bindparam("max_attempts", type_=sa.SmallInteger),
        trace=sa.bindparam("trace", None, type_=sa.Text),
        **_due(),
    )
    if keyed:
        insert = insert.on_conflict_do_update(
            index_elements=[Job.key], index_where=KEY_IS_TAKEN, set_=taking_its_place(insert.excluded)
        )
    return insert.returning(Job.id)


def taking_its_place(newer: Any) -> dict[str, Any]:
    """How a newer call with the same key changes the job that waits."""
    return {
        "queue": newer.queue,
        "task": newer.task,
        "args": newer.args,
        "kwargs": newer.kwargs,
        "max_attempts": newer.max_attempts,
        "expires_at": newer.expires_at,
        # Another job in all but its id: what the older one has tried, and its idempotency key, are not its own.
        "enqueued_at": newer.enqueued_at,
        "attempts": 0,
        "error": None,
        "trace": newer.trace,
        "due_at": sa.func.least(Job.due_at, newer.due_at),
        "rank": sa.func.least(Job.rank, newer.rank),
    }


@cache
def _many() -> Any:
    rows = (
        sa.func.unnest(*(sa.bindparam(name, type_=Array(kind)) for name, kind in _MANY.items()))
        .table_valued(*(sa.column(name, kind) for name, kind in _MANY.items()))
        .render_derived(name="rows")
    )
    given = {
        name: sa.func.coalesce(sa.bindparam(f"same_{name}", type_=kind), rows.c[name]) for name, kind in _MANY.items()
    }
    source = {
        **given,
        **{name: sa.cast(given[name], postgresql.JSON) for name in ("args", "kwargs")},
        **_due(),
        "trace": sa.bindparam("trace", None, type_=sa.Text),
    }
    return postgresql.insert(JOB).from_select(list(source), sa.select(*source.values())).returning(Job.id)


# The doorbell: rung once for each queue and task, after the outermost commit.

_BELLS = "tidemill.bells"


def ring_after_commit(session: Session, queue: str, ticket: str) -> None:
    session.info.setdefault(_BELLS, {})[queue] = ticket


# Of every session of the program: listening to each one that enqueues would cost more than enqueueing.
@event.listens_for(Session, "before_commit")
def _before_commit(session: Session) -> None:
    if session.info.get(_BELLS):
        faults.reach("enqueue.before_commit")


@event.listens_for(Session, "after_commit")
def _after_commit(session: Session) -> None:
    bells: dict[str, str] | None = session.info.get(_BELLS)
    # Releasing a savepoint comes here too, and commits nothing.
    if not bells or session.in_nested_transaction():
        return
    faults.reach("enqueue.committed")
    while bells:
        doorbell.ring(*bells.popitem())


@event.listens_for(Session, "after_rollback")
def _after_rollback(session: Session) -> None:
    if (bells := session.info.get(_BELLS)) and not session.in_nested_transaction():
        bells.clear()
