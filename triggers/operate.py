"""What a person does with a reactive task by hand. Everything is audited, takes effect at once, and is safe to do
while a run waits or works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app import audit
from app.db import transaction
from app.doorbell import GENERIC
from app.errors import BadRequest
from app.jobs.enqueue import ring_after_commit
from triggers import endings
from triggers.ctl import REASON_LIMIT, checked_value
from triggers.definition import queue_of
from triggers.lookup import unknown
from triggers.model import LIVE, RUN, CtlSeen, ReactiveTask, RunId, RunKind, RunState, TaskRun
from triggers.starting import start_ready
from triggers.sync import remove as take_out


@dataclass(frozen=True)
class Seen:
    """What the last seen value of a parameter was, and what it is now; None: never seen."""

    entity: str
    parameter: str
    before: datetime
    after: datetime | None


@contextmanager
def _changing(
    name: str, action: str, *, reason: str | None = None, **detail: Any
) -> Iterator[tuple[Session, Row[Any]]]:
    """Under the lock of the task's row; evaluated anew after the commit."""
    with transaction() as session:
        row = endings.lock_task(session, name)
        if row is None:
            raise unknown(session, name)
        audit.record(session, f"reactive.{action}", name, reason=reason, **detail)
        moved = sa.update(ReactiveTask).where(ReactiveTask.name == name)
        session.execute(moved.values(generation=ReactiveTask.generation + 1))
        yield session, row
    with transaction() as session:
        start_ready(session, [name], "operator")


def start(
    name: str, *, record: bool = False, window: tuple[datetime, datetime] | None = None, reason: str | None = None
) -> RunId:
    """A run by hand, whatever the trigger says. Its check is not remembered as seen, unless `record` says so; with a
    `window`, the task is given that instead of what is new, and `record` remembers its end."""
    if window is not None:
        begin, end = window = (checked_value((name, "from"), window[0]), checked_value((name, "to"), window[1]))
        if begin >= end:
            raise BadRequest(
                f"the window from {begin.isoformat()} to {end.isoformat()} is empty: its end must be later"
            )
    with transaction() as session:
        run_id = start_in(session, name, record=record, window=window)
        told = [moment.isoformat() for moment in window] if window else None
        audit.record(session, "reactive.run", name, reason=reason, record=record, window=told, run=run_id)
        return run_id


def start_in(
    session: Session, name: str, *, record: bool = False, window: tuple[datetime, datetime] | None = None
) -> RunId:
    """The same in a transaction of the caller, who records it."""
    row = endings.lock_task(session, name)
    if row is None:
        raise unknown(session, name)
    if row.removed_at is not None:
        raise BadRequest(f"{name} is not declared any more: no worker can run it")
    live = session.execute(sa.select(TaskRun.id, TaskRun.state).where(TaskRun.task == name, LIVE)).one_or_none()
    if live is not None:
        raise BadRequest(f"{name} has a run that is {live.state} (run {live.id}): wait for its end, or cancel it first")
    made = {
        "task": name,
        "queue": queue_of(row.pool),
        "kind": RunKind.MANUAL,
        "priority": row.priority,
        "rank": -row.priority,
        "record": record,
        "window_from": window and window[0],
        "window_to": window and window[1],
        "generation": row.generation,
        "requested_by": audit.actor(),
    }
    run_id = session.execute(sa.insert(RUN).values(**made).returning(RUN.c.id)).scalar_one()
    ring_after_commit(session, queue_of(row.pool), GENERIC)
    return RunId(run_id)


def cancel(name: str, *, reason: str = "by an operator", run: RunId | None = None) -> RunId:
    """Ends the run that waits or works; only this one, if `run` names it. A worker that has it learns of it within a
    third of its lease, and stops. The task does not start again until its input moves, or it is released; after a run
    by hand it starts as before."""
    with _changing(name, "cancel", reason=_checked_reason(reason)) as (session, row):
        found = session.execute(sa.select(*RUN.c).where(TaskRun.task == name, LIVE).with_for_update()).one_or_none()
        if found is None:
            raise BadRequest(f"{name} has no run that waits or works: there is nothing to cancel")
        if run is not None and found.id != run:
            raise BadRequest(
                f"run {run} of {name} has ended; run {found.id} is {found.state} now: cancel that if you mean it"
            )
        # What a waiting run was checked with at an earlier attempt is out of date.
        checked = found.checked if found.state == RunState.RUNNING else None
        snapshot = checked or endings.snapshot_of(session, row)
        endings.cancelled(session, found.id, name, found.pass_key, reason, snapshot)
        return RunId(found.id)


def _checked_reason(reason: str) -> str:
    if not reason.strip() or len(reason) > REASON_LIMIT or not reason.isprintable():
        raise BadRequest(f"reason={reason!a:.100} must say why, in 1 to {REASON_LIMIT} printable characters")
    return reason


def rewind(name: str, to: datetime, *, reason: str | None = None) -> list[Seen]:
    """Takes back what the task has seen after `to`: what came since then is new to it again."""
    moment = checked_value((name, "to"), to)
    with _changing(name, "rewind", reason=reason, to=moment.isoformat()) as (session, _):
        later = sa.and_(CtlSeen.task == name, CtlSeen.value > moment)
        before = session.execute(sa.select(CtlSeen.entity, CtlSeen.parameter, CtlSeen.value).where(later)).all()
        session.execute(sa.update(CtlSeen).where(later).values(value=moment, seen_at=sa.func.now()))
        _seen_changed(session, name)
        return [Seen(row.entity, row.parameter, row.value, moment) for row in before]


def forget(name: str, *, reason: str | None = None) -> list[Seen]:
    """The task has seen nothing: everything is new to it, as at its first run."""
    with _changing(name, "forget", reason=reason) as (session, _):
        gone = sa.delete(CtlSeen).where(CtlSeen.task == name)
        rows = session.execute(gone.returning(CtlSeen.entity, CtlSeen.parameter, CtlSeen.value)).all()
        _seen_changed(session, name)
        return [Seen(row.entity, row.parameter, row.value, None) for row in rows]


def put_back(name: str, seen: Sequence[Seen], *, reason: str | None = None) -> None:
    """Undoes a `rewind` or `forget`, as long as the task has seen nothing since."""
    told = {f"{each.entity}.{each.parameter}": each.before.isoformat() for each in seen}
    with _changing(name, "put_back", reason=reason, seen=told) as (session, _):
        c = CtlSeen
        here = session.execute(sa.select(c.entity, c.parameter, c.value).where(c.task == name).with_for_update())
        now = {(row.entity, row.parameter): row.value for row in here}
        for each in seen:
            key = (each.entity, each.parameter)
            if now.get(key) != each.after:
                raise BadRequest(f"{name} has seen {'.'.join(key)} anew since: what it saw before is not put back")
            values = {"task": name, "entity": each.entity, "parameter": each.parameter, "value": each.before}
            insert = postgresql.insert(c).values(**values)
            moved = {"value": each.before, "seen_at": sa.func.now()}
            session.execute(insert.on_conflict_do_update(index_elements=["task", "entity", "parameter"], set_=moved))
        _seen_changed(session, name)


def _seen_changed(session: Session, name: str) -> None:
    changed = sa.update(ReactiveTask).where(ReactiveTask.name == name)
    session.execute(changed.values(seen_epoch=ReactiveTask.seen_epoch + 1))


def pause(name: str, *, reason: str | None = None) -> bool:
    """It starts no more; a run that waits is taken back, one that works ends as usual. Whether that is new."""
    with _changing(name, "pause", reason=reason) as (session, row):
        session.execute(sa.update(ReactiveTask).where(ReactiveTask.name == name).values(paused=True))
        waits = sa.and_(RUN.c.task == name, RUN.c.state == RunState.WAITING, RUN.c.kind == RunKind.REGULAR)
        for run_id in session.execute(sa.select(RUN.c.id).where(waits).with_for_update()).scalars().all():
            endings.cancelled(session, run_id, name, None, "the task was paused", None)
        return not row.paused


def resume(name: str, *, reason: str | None = None) -> bool:
    """It starts again when its trigger holds. Whether it was paused."""
    with _changing(name, "resume", reason=reason) as (session, row):
        session.execute(sa.update(ReactiveTask).where(ReactiveTask.name == name).values(paused=False))
        return bool(row.paused)


def release(name: str, *, reason: str | None = None) -> bool:
    """From quarantine, with its failures forgotten. Whether it was in one."""
    with _changing(name, "release", reason=reason) as (session, row):
        free = {"quarantined_at": None, "quarantine_reason": None, "quarantine_values": None, "failures": 0}
        session.execute(sa.update(ReactiveTask).where(ReactiveTask.name == name).values(**free))
        return row.quarantined_at is not None


def remove(name: str, *, reason: str | None = None) -> bool:
    """For a task whose module is gone: no service imports it, so none sees that it is not declared. A service that
    declares it brings it back when it starts. Whether that is new."""
    with _changing(name, "remove", reason=reason) as (session, row):
        if row.removed_at is None:
            take_out(session, [name])
        return row.removed_at is None
