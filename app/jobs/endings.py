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
from sqlalchemy.dialects.postgresql import ARRAY, JSON
from sqlalchemy.engine import Connection, Row

from app import claims
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
            sa.bindparam("key_0", type_=ARRAY(sa.BigInteger)),
            sa.bindparam("elapsed", type_=ARRAY(sa.Double)),
            sa.bindparam("results", type_=ARRAY(sa.Text)),
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
    error = _storable(failure.error[:ERROR_LIMIT])
    trace = _storable(failure.traceback[-TRACEBACK_LIMIT:]) if failure.traceback else None
    if failure.again is None:
        ours = bool(claims.park(executor, Job, pass_key, key, error=error))
    elif absorbed(executor, pass_key, [row.id], error=error, traceback=trace):
        return True
    else:
        ours = bool(
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
    if ours and failure.outcome is not None:
        log(executor, row, failure.outcome, started, error=error, traceback=trace)
    return ours


def _storable(text: str) -> str:
    """Whatever an exception says: Postgres takes no NUL, and no half of a surrogate pair."""
    return text.replace("\x00", "").encode(errors="backslashreplace").decode()


def log(executor: Executor, row: Any, outcome: Outcome, started: float | None = None, **more: Any) -> None:
    """Writes one execution; without `started` there was none, or nobody knows when it began but the claim."""
    now = sa.func.clock_timestamp()
    began = row.claimed_at if started is None else now - timedelta(seconds=time.monotonic() - started)
    executor.execute(sa.insert(JOB_LOG).values(**_copied(row), outcome=outcome, started_at=began, ended_at=now, **more))


def absorbed(executor: Executor, pass_key: PassKey | None, ids: Sequence[int], **more: Any) -> set[int]:
    """Jobs that would go back to waiting, but a newer one waits with their key: it takes their place."""
    newer = JOB.alias("newer")
    mine = JOB.c.pass_key == pass_key if pass_key is not None else sa.true()
    statement = (
        sa.delete(JOB)
        .where(
            JOB.c.id == sa.any_(sa.cast(list(ids), ARRAY(sa.BigInteger))),
            mine,
            newer.c.key == JOB.c.key,
            newer.c.state == sa.literal_column("'waiting'"),
        )
        .returning(*JOB.c)
    )
    gone = executor.execute(statement).all()
    for row in gone:
        log(executor, row, Outcome.ABSORBED, **more)
    return {row.id for row in gone}


def still_ours(job_id: int, pass_key: PassKey) -> bool:
    with autocommit() as connection:
        found = connection.execute(sa.select(Job.id).where(Job.id == job_id, Job.pass_key == pass_key))
        return found.one_or_none() is not None
