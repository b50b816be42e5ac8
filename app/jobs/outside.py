"""Jobs of producers that do not have the code of the tasks: put in by the name of a known task (J10), all or none.

What is asked for goes through `tidemill.enqueue`, as from any program that speaks SQL. Beside that, each queue is asked
for with `allow` before anything is done to it: also that of a job which waits under the same key, and whose place the
new one would take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSON, TIMESTAMP
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from app.db import transaction
from app.doorbell import GENERIC
from app.errors import BadRequest, TooLarge, UnknownTask
from app.jobs import payload
from app.jobs.enqueue import Moment, ring_after_commit
from app.jobs.model import JOB, Job, JobId, JobState, KnownTask
from app.near import nearest, shown

#: How often another producer may come between the look at a key and its use.
TRIES = 5
_DEADLOCK = "40P01"
_REFUSALS: dict[str, type[BadRequest]] = {"22023": BadRequest, "54000": TooLarge}


@dataclass(frozen=True)
class Wanted:
    """As the arguments of `enqueue`, with a name for the task."""

    task: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = None
    key: str | None = None
    eta: Moment = None
    priority: int = 0
    expires: Moment = None
    max_attempts: int | None = None

    def row(self) -> dict[str, Any]:
        args, kwargs = payload.arguments(self.task, self.args, self.kwargs)
        eta, delay = payload.moment("eta", self.eta)
        expires, lifetime = payload.moment("expires", self.expires)
        return {
            "task": self.task,
            "args": args,
            "kwargs": kwargs,
            "queue": None if self.queue is None else payload.name("queue", self.queue),
            "key": None if self.key is None else payload.name("key", self.key),
            "priority": -payload.rank_of(self.priority),
            "max_attempts": self.max_attempts,
            "eta": eta,
            "delay": delay,
            "expires": expires,
            "lifetime": lifetime,
        }


class _Overtaken(Exception):
    """Somebody has put a job in under the key since it was looked at."""


def put(wanted: Sequence[Wanted], allow: Callable[[str], None]) -> list[JobId]:
    """Their ids, in order. `allow` raises for a queue that the producer may not use."""
    rows = [each.row() for each in wanted]
    for _ in range(TRIES):
        try:
            with transaction() as session:
                return _put(session, rows, allow)
        except _Overtaken:
            pass
        except DBAPIError as error:
            # Two calls with new keys in common, each in an order of its own.
            if getattr(error.orig, "pgcode", None) != _DEADLOCK:
                raise
    raise BadRequest("others put jobs in under the same keys again and again: choose keys of your own")


def _put(session: Session, rows: Sequence[Mapping[str, Any]], allow: Callable[[str], None]) -> list[JobId]:
    queues = _queues(session, {row["task"] for row in rows})
    used = {row["queue"] or queues[row["task"]] for row in rows}
    keys = {row["key"] for row in rows if row["key"] is not None}
    taken = _waiting(session, keys)
    for name in sorted(used | set(taken.values())):
        allow(name)
    ids = []
    for row in rows:
        # As it was allowed, whatever a service that starts in this moment says of the task.
        ids.append(_enqueue(session, {**row, "queue": row["queue"] or queues[row["task"]]}))
        if row["key"] is not None and row["key"] not in taken:
            if not _is_new(session, ids[-1]):
                raise _Overtaken
            taken[row["key"]] = ""
    for name in used:
        ring_after_commit(session, name, GENERIC)
    return ids


def _queues(session: Session, tasks: Iterable[str]) -> dict[str, str]:
    """Of these tasks, as the last service that started has told."""
    rows: Any = session.execute(sa.select(KnownTask.name, KnownTask.queue).where(KnownTask.name.in_(tasks)))
    found = {row.name: row.queue for row in rows}
    for name in tasks:
        if name not in found:
            near = nearest(name, session.scalars(sa.select(KnownTask.name)))
            hint = f"did you mean {near}?" if near else "a worker makes its tasks known when it starts"
            raise UnknownTask(f"no task {shown(name)} is known: {hint}")
    return found


def _waiting(session: Session, keys: Iterable[str]) -> dict[str, str]:
    """Queues of the jobs that wait under these keys, locked in one order, so that two calls do not deadlock."""
    if not keys:
        return {}
    waits = (Job.key.in_(keys), Job.state == JobState.WAITING)
    rows: Any = session.execute(sa.select(Job.key, Job.queue).where(*waits).order_by(Job.key).with_for_update())
    return {row[0]: row[1] for row in rows}


def _is_new(session: Session, job_id: JobId) -> bool:
    """Rather than one whose place was taken: that row had a version before."""
    version = sa.literal_column("xmax").cast(sa.Text)
    return session.execute(sa.select(version).select_from(JOB).where(JOB.c.id == job_id)).scalar_one() == "0"


def _enqueue(session: Session, row: Mapping[str, Any]) -> JobId:
    try:
        return JobId(session.execute(_calling(), row).scalar_one())
    except DBAPIError as error:
        orig: Any = error.orig
        if (kind := _REFUSALS.get(getattr(orig, "pgcode", "") or "")) is None:
            raise
        hint = f". {orig.diag.message_hint}" if orig.diag.message_hint else ""
        raise kind(f"{orig.diag.message_primary}{hint}") from None


@cache
def _calling() -> Any:
    def bound(name: str, kind: Any) -> Any:
        return sa.bindparam(name, type_=kind)

    def moment(at: str, span: str) -> Any:
        return sa.func.coalesce(bound(at, TIMESTAMP(timezone=True)), sa.func.now() + bound(span, sa.Interval))

    return sa.select(
        sa.func.tidemill.enqueue(
            bound("task", sa.Text),
            sa.cast(bound("args", sa.Text), JSON),
            sa.cast(bound("kwargs", sa.Text), JSON),
            bound("queue", sa.Text),
            bound("key", sa.Text),
            moment("eta", "delay"),
            bound("priority", sa.Integer),
            moment("expires", "lifetime"),
            bound("max_attempts", sa.Integer),
        )
    )
