"""How an execution ends: the job leaves the queue, or goes back, or is parked; its execution goes to the log (J5).

Every function writes only where the pass is still ours, and says what was.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.engine import Connection, Row

from app import claims
from app.arrays import Array
from app.claims import Executor, PassKey
from app.db import autocommit
from app.jobs.model import JOB, JOB_LOG, Job, Outcome
from app.prepared import Prepared

ERROR_LIMIT, TRACEBACK_LIMIT = 2_000, 20_000


class Done(NamedTuple):
    """`started` on the monotonic clock; `result` as JSON text, if it is to be kept."""

    id: int
    started: float
    result: str | None = None


@dataclass(frozen=True)
class Failure:
    """`again`: after how long it is tried again; None: it is parked. `uncharged`: the attempt does not count.
    `outcome` None: nothing was run, and nothing goes to the log."""

    error: str
    traceback: str | None = None
    again: timedelta | None = None
    outcome: Outcome | None = Outcome.FAILED
    uncharged: bool = False
    alone: bool = False
    changes: dict[str, Any] = field(default_factory=dict)
    #: By the function, where it did.
    raised: BaseException | None = field(default=None, compare=False)


_COPIED = ("queue", "task", "args", "kwargs", "key", "rank", "max_attempts", "enqueued_at")


def _copied(row: Any) -> dict[str, Any]:
    return {"job_id": row.id, "attempt": row.attempts, "worker": row.claimed_by} | {
        name: getattr(row, name) for name in _COPIED
    }


def done(executor: Executor, pass_key: PassKey, ended: Sequence[Done]) -> set[int]:
    """Ended well: one statement deletes the jobs and writes their log. Returns the ids that were ours."""
    now = time.monotonic()
    parameters = {
        "pass_key": pass_key,
        **claims.bound_keys([(each.id,) for each in ended]),
        "elapsed": [now - each.started for each in ended],
        "results": [each.result for each in ended],
    }
    if isinstance(executor, Connection):
        return set(_done_prepared().execute(executor, parameters).scalars())
    return set(executor.execute(_done(), parameters).scalars())


def warm_up() -> None:
    _done_prepared()


@cache
def _done_prepared() -> Prepared:
    return Prepared("job_done", _done())


@cache
def _done() -> Any:
    gone = claims.finishing(Job).cte("gone")
    ends = (
        sa.func.unnest(
            sa.bindparam("key_0", type_=Array(sa.BigInteger)),
            sa.bindparam("elapsed", type_=Array(sa.Double)),
            sa.bindparam("results", type_=Array(sa.Text)),
        )
        .table_valued(sa.column("id", sa.BigInteger), sa.column("elapsed", sa.Double), sa.column("result", sa.Text))
        .render_derived(name="ends")
    )
    now = sa.func.clock_timestamp()
    started = now - ends.c.elapsed * sa.cast("1 second", sa.Interval)
    columns: dict[str, Any] = _copied(gone.c) | {
        "outcome": sa.literal_column("'done'"),
        "started_at": started,
        "ended_at": now,
        "result": sa.cast(ends.c.result, JSON),
    }
    source = sa.select(*columns.values()).select_from(gone.join(ends, ends.c.id == gone.c.id))
    return sa.insert(JOB_LOG).from_select(list(columns), source).returning(JOB_LOG.c.job_id)


def failed(executor: Executor, pass_key: PassKey, row: Row[Any], started: float | None, failure: Failure) -> bool:
    """Did not end well: back, to be tried again, or parked. Whether it was still ours."""
    key = [(row.id,)]
    error = storable(failure.error[:ERROR_LIMIT])
    trace = storable(failure.traceback[-TRACEBACK_LIMIT:]) if failure.traceback else None
    if failure.again is not None and absorbed(executor, pass_key, [row.id], error=error, traceback=trace):
        return True
    if failure.outcome is not None:
        log(executor, [row.id], failure.outcome, pass_key=pass_key, started=started, error=error, traceback=trace)
    if failure.again is None:
        return bool(claims.park(executor, Job, pass_key, key, error=error))
    return bool(
        claims.give_back(
            executor,
            Job,
            pass_key,
            key,
            charged=not failure.uncharged,
            delay=failure.again or None,
            alone=failure.alone,
            error=error,
            **failure.changes,
        )
    )


def storable(text: str) -> str:
    """Whatever an exception says: Postgres takes no NUL, and no half of a surrogate pair."""
    return text.replace("\x00", "").encode(errors="backslashreplace").decode()


def log(
    executor: Executor,
    ids: Sequence[int],
    outcome: Outcome,
    *,
    pass_key: PassKey | None = None,
    started: float | None = None,
    **more: Any,
) -> set[int]:
    """Writes an execution of each job that is in the queue, and ours if a pass is given; call it before the job leaves.

    From row to row within the database: arguments that came in by SQL need not be such as Python can write again.
    Without `started` there was no execution, or nobody knows when it began but the claim. What is not running has a
    worker and a beginning of its last claim, which is no part of this.
    """
    now = sa.func.clock_timestamp()
    mine = sa.true() if pass_key is None else JOB.c.pass_key == pass_key
    held = sa.select(JOB).where(_among(ids), mine).order_by(JOB.c.id).with_for_update().cte("held")
    began = held.c.claimed_at if started is None else now - timedelta(seconds=time.monotonic() - started)
    runs = held.c.state == sa.literal_column("'running'")
    columns = _copied(held.c) | {
        "worker": sa.case((runs, held.c.claimed_by)),
        "outcome": sa.cast(outcome, JOB_LOG.c.outcome.type),
        "started_at": sa.case((runs, began)),
        "ended_at": now,
    }
    columns |= {name: sa.cast(value, JOB_LOG.c[name].type) for name, value in more.items()}
    statement = sa.insert(JOB_LOG).from_select(list(columns), sa.select(*columns.values()))
    return set(executor.execute(statement.returning(JOB_LOG.c.job_id)).scalars())


def _among(ids: Sequence[int]) -> sa.ColumnElement[bool]:
    return JOB.c.id == sa.any_(sa.cast(list(ids), Array(sa.BigInteger)))


def leave(
    executor: Executor, ids: Sequence[int], outcome: Outcome, *, pass_key: PassKey | None = None, **more: Any
) -> set[int]:
    """Takes jobs out of the queue that have not run; their log says why."""
    gone = log(executor, ids, outcome, pass_key=pass_key, **more)
    if gone:
        executor.execute(sa.delete(JOB).where(_among(sorted(gone))))
    return gone


def absorbed(executor: Executor, pass_key: PassKey | None, ids: Sequence[int], **more: Any) -> set[int]:
    """Jobs that would go back to waiting, but a newer one waits with their key, or goes back together with them: it
    takes their place."""
    newer = JOB.alias("newer")
    waits = newer.c.state == sa.literal_column("'waiting'")
    goes_back = sa.and_(newer.c.id == sa.any_(sa.cast(list(ids), Array(sa.BigInteger))), newer.c.id > JOB.c.id)
    replaced = sa.exists().where(newer.c.key == JOB.c.key, newer.c.id != JOB.c.id, sa.or_(waits, goes_back))
    found = executor.execute(sa.select(JOB.c.id).where(_among(ids), JOB.c.key.is_not(None), replaced)).scalars().all()
    return leave(executor, found, Outcome.ABSORBED, pass_key=pass_key, **more) if found else set()


def still_ours(job_id: int, pass_key: PassKey) -> bool:
    with autocommit() as connection:
        found = connection.execute(sa.select(Job.id).where(Job.id == job_id, Job.pass_key == pass_key))
        return found.one_or_none() is not None
