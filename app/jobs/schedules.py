"""Periodic jobs (J9): durable rows, each slot fired once for the cluster, however many services look.

The slot moves in the transaction that enqueues the job, under the lock of the row: a service that dies in between has
done neither, two that look at once fire once. Where a stranger's open transaction has to do with the job that still
waits, that timetable stays due, and the others fire.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError
from sqlalchemy.orm import Session

from app import faults
from app.arrays import Array
from app.checks import limited
from app.clock import duration
from app.db import joined, transaction
from app.errors import BadRequest, NotFound, SettingsError, Unavailable
from app.jobs import payload
from app.jobs.enqueue import (
    Signature,
    arguments_of,
    attempts_of,
    check_of,
    insert_rows,
    queue_name,
    queue_of,
    task_of,
)
from app.jobs.model import KEY_IS_TAKEN, Job, PeriodicJob
from app.jobs.options import refuse_options
from app.jobs.timetable import CatchUp, Timetable, due

log = logging.getLogger(__name__)
SLOTS_A_PASS = 1000
#: What cannot fire is looked at again after so long.
BROKEN = timedelta(minutes=1)
#: How long a key that a stranger enqueues just now is waited for; and, after so many in a pass, each further one.
LOCK_TIMEOUT, BLOCKED_MOST, THEN_TIMEOUT = "100ms", 3, "1ms"
#: lock_not_available, deadlock_detected
_IN_THE_WAY = ("55P03", "40P01")


@dataclass(frozen=True)
class Report:
    """`busy`: a stranger's open transaction holds or enqueues the job of their key; the next pass tries again."""

    fired: int = 0
    jobs: int = 0
    broken: int = 0
    busy: int = 0


@dataclass(frozen=True)
class _Firing:
    row: PeriodicJob
    jobs: list[dict[str, Any]]
    following: datetime


@dataclass(frozen=True)
class Declared:
    name: str
    values: dict[str, Any]
    timetable: Timetable


#: What modules have declared; services write it when they start.
declared: dict[str, Declared] = {}
_loading = False


def loading(begun: bool) -> None:  # noqa: FBT001
    """While a service imports the user's modules, declarations are collected, and written at once afterwards."""
    global _loading
    _loading = begun


def periodic(
    signature: Signature,
    *,
    cron: str | None = None,
    every: str | float | timedelta | None = None,
    tz: str = "UTC",
    catch_up: str = "last",
    name: str | None = None,
    queue: str | None = None,
    priority: int | None = None,
    session: Session | None = None,
) -> str:
    """Enqueues the signature at each time of a cron line, or each interval. Returns its name, which is the task's
    unless given: declared again under it, it is changed, not doubled.

    Written in `session`'s transaction, else in one of its own; where there is no database yet (a module imported by a
    tool), when the next service that imports the module starts.
    """
    if catch_up not in list(CatchUp):
        raise BadRequest(f"catch_up={catch_up!r} must be one of {', '.join(CatchUp)}")
    try:
        policy = CatchUp(catch_up)
        interval = None if every is None else duration(every)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    task = task_of(signature)
    refuse_options(task.name, signature.options)
    args, kwargs = arguments_of(task.name, signature, check_of(task))
    values = {
        "task": task.name,
        "args": args,
        "kwargs": kwargs,
        "queue": queue_name(queue) if queue is not None else queue_of(task, signature.options),
        "rank": payload.rank_of(signature.options.get("priority") or 0 if priority is None else priority),
        "max_attempts": attempts_of(task),
        "catch_up": policy,
    }
    entry = Declared(payload.name("name", name or task.name), values, Timetable(tz, cron, interval))
    declared[entry.name] = entry
    if session is not None or not _loading:
        _write_now(entry, session)
    return entry.name


def _write_now(entry: Declared, session: Session | None) -> None:
    try:
        with joined(session) as tx:
            write(tx, entry)
    except (SettingsError, Unavailable) as error:
        if session is not None:
            raise
        log.warning("periodic job %s is not written yet (%s): a service that imports it will", entry.name, error)


def write_declared(session: Session) -> int:
    for _, entry in sorted(declared.items()):
        write(session, entry)
    return len(declared)


def write(session: Session, entry: Declared) -> None:
    table = entry.timetable
    now = session.execute(sa.select(sa.func.now())).scalar_one()
    values = {
        **entry.values,
        "args": _as_json(entry.values["args"]),
        "kwargs": _as_json(entry.values["kwargs"]),
        "cron": table.cron,
        "every": table.every,
        "tz": table.tz,
    }
    insert = postgresql.insert(PeriodicJob).values(name=entry.name, next_at=table.first(now), **values)
    same = sa.and_(
        PeriodicJob.cron.is_not_distinct_from(insert.excluded.cron),
        PeriodicJob.every.is_not_distinct_from(insert.excluded.every),
        PeriodicJob.tz == insert.excluded.tz,
    )
    # Declared again as it was, it keeps its slot: a restart neither fires nor skips one.
    next_at = sa.case((same, PeriodicJob.next_at), else_=insert.excluded.next_at)
    session.execute(insert.on_conflict_do_update(index_elements=["name"], set_={**values, "next_at": next_at}))


def _as_json(text: str) -> Any:
    """What is text to us is JSON to the database; a plain cast would make a JSON string of it."""
    return sa.cast(sa.literal(text, sa.Text), postgresql.JSON)


@limited
def run_once(limit: int = 100) -> Report:
    """Fires what is due, at most `limit` timetables."""
    with transaction() as session:
        now: datetime = session.execute(sa.select(sa.func.now())).scalar_one()
        # The arguments as they stand there: what cannot be read is parked by the worker of that one job.
        words, named = (
            sa.cast(each, sa.Text).label(f"{each.key}_text") for each in (PeriodicJob.args, PeriodicJob.kwargs)
        )
        rows = session.execute(
            sa.select(PeriodicJob, words, named)
            .where(PeriodicJob.next_at <= sa.func.now(), ~PeriodicJob.paused)
            .order_by(PeriodicJob.next_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        ).all()
        planned = [_planned(row, args, kwargs, now) for row, args, kwargs in rows]
        firings = [each for each in planned if each is not None]
        put_in, refused = _put_in(session, firings) if firings else ([], [])
        for each in put_in:
            each.row.next_at = each.following
            if each.jobs:
                each.row.fired_at = each.jobs[-1]["due_at"]
        for each in refused:
            each.row.next_at = now + BROKEN
        faults.reach("periodic.before_commit")
    faults.reach("periodic.committed")
    fired, jobs = sum(bool(each.jobs) for each in put_in), sum(len(each.jobs) for each in put_in)
    broken = planned.count(None) + len(refused)
    return Report(fired, jobs, broken, len(firings) - len(put_in) - len(refused))


def _planned(row: PeriodicJob, args: str, kwargs: str, now: datetime) -> _Firing | None:
    try:
        table = Timetable(row.tz, row.cron, row.every)
        slots, following = due(table, row.next_at, now, CatchUp(row.catch_up), SLOTS_A_PASS)
    except (BadRequest, ValueError, OverflowError) as error:
        # Written by another hand, or a zone that this machine does not know: the others must fire.
        log.error("periodic job %s cannot fire: %s", row.name, error)
        row.next_at = now + BROKEN
        return None
    return _Firing(row, [_job(row, args, kwargs, slot) for slot in slots], following)


def _put_in(session: Session, firings: list[_Firing]) -> tuple[list[_Firing], list[_Firing]]:
    """Those that nobody was in the way of, all at once or else one by one; and those that the database refuses.
    Bounded, however many are blocked."""
    free = _not_held(session, firings)
    session.execute(_patience(LOCK_TIMEOUT))
    if _kept_out(session, free) is None:
        return free, []
    put_in, refused, blocked = [], [], 0
    for each in free:
        match _kept_out(session, [each]):
            case None:
                put_in.append(each)
            case OperationalError():
                blocked += 1
                if blocked == BLOCKED_MOST:
                    session.execute(_patience(THEN_TIMEOUT))
            case error:
                log.error("periodic job %s cannot fire: %s", each.row.name, error.orig)
                refused.append(each)
    return put_in, refused


def _not_held(session: Session, firings: list[_Firing]) -> list[_Firing]:
    """Without those whose waiting job somebody holds. For what somebody enqueues just now there is no such look."""
    keys = [job["key"] for each in firings for job in each.jobs]
    waiting = sa.select(Job.key).where(Job.key == sa.any_(sa.cast(keys, Array(sa.Text))), KEY_IS_TAKEN)
    ours = set(session.execute(waiting.with_for_update(skip_locked=True)).scalars())
    theirs = set(session.execute(waiting).scalars()) - ours
    return [each for each in firings if theirs.isdisjoint(job["key"] for job in each.jobs)]


def _patience(timeout: str) -> sa.Select[Any]:
    return sa.select(sa.func.set_config("lock_timeout", timeout, True))


def _kept_out(session: Session, firings: list[_Firing]) -> DBAPIError | None:
    """Puts in all of them, or none: by whom, or by what they are."""
    try:
        with session.begin_nested():
            insert_rows(session, [job for each in firings for job in each.jobs])
    except OperationalError as error:
        if getattr(error.orig, "pgcode", None) not in _IN_THE_WAY:
            raise
        return error
    except (IntegrityError, DataError) as error:
        return error
    return None


def _job(row: PeriodicJob, args: str, kwargs: str, slot: datetime) -> dict[str, Any]:
    all_ = row.catch_up == CatchUp.ALL
    return {
        "queue": row.queue,
        "task": row.task,
        "args": args,
        "kwargs": kwargs,
        # One that still waits is not joined by a second, unless every slot counts.
        "key": f"periodic:{row.name}" + (f":{slot.isoformat()}" if all_ else ""),
        "rank": row.rank,
        "max_attempts": row.max_attempts,
        "due_at": slot,
        "delay": None,
        "expires_at": None,
        "lifetime": None,
    }


def set_paused(name: str, paused: bool, *, session: Session | None = None) -> None:  # noqa: FBT001
    with joined(session) as tx:
        found = tx.execute(
            sa.update(PeriodicJob).where(PeriodicJob.name == name).values(paused=paused).returning(PeriodicJob.name)
        )
        if found.one_or_none() is None:
            raise NotFound(f"no periodic job is named {name!r}: 'tidemill job periodic' lists them")


def remove(name: str, *, session: Session | None = None) -> None:
    with joined(session) as tx:
        found = tx.execute(sa.delete(PeriodicJob).where(PeriodicJob.name == name).returning(PeriodicJob.name))
        if found.one_or_none() is None:
            raise NotFound(f"no periodic job is named {name!r}: 'tidemill job periodic' lists them")
    declared.pop(name, None)
