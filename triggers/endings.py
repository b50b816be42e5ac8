"""How a run ends. Each ending is one transaction, under the lock of the task's row, and moves its generation.

A run that ends well makes what its check saw the task's last seen (T11), advances what it produced, and leaves the
task to be evaluated anew. Any other end leaves last seen as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app.claims import PassKey
from app.errors import ClaimLost
from app.jobs.endings import ERROR_LIMIT, TRACEBACK_LIMIT, storable
from triggers import ctl, missed, values
from triggers.ctl import Parameter
from triggers.definition import queue_of
from triggers.model import RUN, TASK, Ctl, CtlSeen, ReactiveTask, RunKind, RunState
from triggers.starting import readable
from triggers.values import windows

Outputs = Mapping[Parameter, datetime]

BACKOFF_MOST = timedelta(hours=1)
#: Of what a task asks for itself.
AGAIN_MOST = timedelta(days=3650)
#: A run by hand that lost its worker: how soon it is tried again, doubled each time, and how often.
AGAIN = timedelta(seconds=1)
LOST_MOST = 10


def lock_task(session: Session, name: str, *, skip_locked: bool = False) -> Row[Any] | None:
    """Always before the row of its run."""
    query = sa.select(*TASK.c).where(ReactiveTask.name == name)
    return session.execute(query.with_for_update(skip_locked=skip_locked)).one_or_none()


def _end(session: Session, run_id: int, pass_key: PassKey | None, state: RunState, **more: Any) -> Row[Any] | None:
    """`pass_key` None: it waits. Nothing where it is not ours any more."""
    ours = RUN.c.state == RunState.WAITING if pass_key is None else RUN.c.pass_key == pass_key
    ended = {"state": state, "pass_key": None, "recovery_time": None, "ended_at": sa.func.clock_timestamp(), **more}
    return session.execute(
        sa.update(RUN).where(RUN.c.id == run_id, ours).values(**ended).returning(*RUN.c)
    ).one_or_none()


def move_on(session: Session, task: str, **more: Any) -> None:
    """What an evaluation that began before has read of the task is out of date."""
    moved = {"generation": ReactiveTask.generation + 1, **more}
    session.execute(sa.update(ReactiveTask).where(ReactiveTask.name == task).values(**moved))


def done(session: Session, row: Row[Any], pass_key: PassKey, outputs: Outputs, let_go: Callable[[], None]) -> None:
    """Ended well; `ClaimLost` if it was not ours any more.

    First what it produced: a stranger's open transaction may hold these rows for long, and until the run's own row is
    locked, its lease is extended. `let_go` is called when nothing is left to wait for."""
    locked = lock_task(session, row.task)
    if outputs:
        ahead = _ahead(session, outputs) if row.kind == RunKind.MANUAL else outputs
        if ahead:
            ctl.advance_many(ahead, session=session)
    told = [[*name, value.isoformat()] for name, value in sorted(outputs.items())]
    let_go()
    run = _end(session, row.id, pass_key, RunState.DONE, outputs=told or None, error=None, traceback=None)
    if run is None:
        raise ClaimLost(f"run {row.id} of {row.task} is not ours any more: nothing of this was saved")
    # Whoever has rewound it meanwhile meant what comes after this run.
    if run.record and locked is not None and locked.seen_epoch == run.seen_epoch:
        _remember(session, run)
    move_on(session, row.task, **({"failures": 0} if run.kind == RunKind.REGULAR else {}))


def _ahead(session: Session, outputs: Outputs) -> dict[Parameter, datetime]:
    """By hand, what is old is made anew; that does not say that its data set has got less far."""
    query = sa.select(Ctl.entity, Ctl.parameter, Ctl.value).where(
        sa.tuple_(Ctl.entity, Ctl.parameter).in_(sorted(outputs))
    )
    # Locked, in the order of keys: nobody moves them past these values before this is committed.
    order = (Ctl.entity.collate("C"), Ctl.parameter.collate("C"))
    rows = session.execute(query.order_by(*order).with_for_update()).all()
    found = {(row.entity, row.parameter): row.value for row in rows}
    return {name: value for name, value in outputs.items() if name not in found or found[name] < value}


def _remember(session: Session, run: Row[Any]) -> None:
    rows = []
    for (entity, parameter), (_, current) in windows(run.checked or ()).items():
        value = current if run.window_to is None or current is None else min(current, run.window_to)
        if value is not None:
            rows.append({"task": run.task, "entity": entity, "parameter": parameter, "value": value})
    if rows:
        insert = postgresql.insert(CtlSeen).values(rows)
        # A window of long ago takes nothing back of what was seen since.
        value = (
            insert.excluded.value if run.window_to is None else sa.func.greatest(CtlSeen.value, insert.excluded.value)
        )
        taken = {"value": value, "seen_at": sa.func.now()}
        keys = ["task", "entity", "parameter"]
        session.execute(insert.on_conflict_do_update(index_elements=keys, set_=taken))


def failed(
    session: Session,
    run_id: int,
    task: str,
    pass_key: PassKey,
    error: str,
    traceback: str | None = None,
    again: timedelta | None = None,
) -> RunState | None:
    """An attempt that failed: the run waits to be tried again (T22), after `again` if the task says so, or it is over
    and the task quarantined. None: it was not ours any more."""
    row = lock_task(session, task)
    run = session.execute(sa.select(*RUN.c).where(RUN.c.id == run_id, RUN.c.pass_key == pass_key)).one_or_none()
    if run is None:
        return None
    words = told(error, traceback)
    # Of one that is not declared any more, no worker would take it again.
    if row is None or row.removed_at is not None or run.kind == RunKind.MANUAL:
        _end(session, run_id, pass_key, RunState.FAILED, **words)
        move_on(session, task)
        return RunState.FAILED
    failures = min(row.failures + 1, 32767)
    if failures >= row.max_failures:
        _end(session, run_id, pass_key, RunState.FAILED, **words)
        reason = f"failed {failures} times in a row: {words['error']}"
        # It may have lost its worker each time before that could check it.
        quarantine(session, task, reason, run.checked or snapshot_of(session, row), failures=failures)
        return RunState.FAILED
    wait = backoff(row.backoff, failures) if again is None else min(again, AGAIN_MOST)
    give_back(session, run_id, pass_key, wait, **words)
    session.execute(sa.update(ReactiveTask).where(ReactiveTask.name == task).values(failures=failures))
    return RunState.WAITING


def lost(session: Session, row: Row[Any], error: str) -> RunState | None:
    """Its worker died. A run that was started by hand is made all the same, but not for ever."""
    task = lock_task(session, row.task)
    declared = task is not None and task.removed_at is None
    if row.kind == RunKind.MANUAL and row.attempts < LOST_MOST and declared:
        give_back(session, row.id, row.pass_key, AGAIN * 2 ** min(row.attempts, 8), **told(error, None))
        return RunState.WAITING
    return failed(session, row.id, row.task, row.pass_key, error)


def backoff(first: timedelta, failures: int) -> timedelta:
    """Doubled with each failure, up to an hour, or to what the task itself begins with."""
    most = max(BACKOFF_MOST, first)
    return first if first >= most else min(most, first * 2 ** min(failures - 1, 32))


def snapshot_of(session: Session, task: Row[Any]) -> Any:
    trigger = readable(task.name, task.trigger)
    return None if trigger is None else values.read(session, [(task.name, trigger)]).snapshot(task.name, trigger)


def exists(session: Session, task: str) -> bool:
    return session.execute(sa.select(TASK.c.id).where(TASK.c.name == task)).first() is not None


def give_back(
    session: Session, run_id: int, pass_key: PassKey, wait: timedelta, *, charged: bool = True, **more: Any
) -> bool:
    """To be tried again; no failure of the task. `charged`: the attempt was made.

    Under the lock of the task, whose pool may have changed while it ran."""
    pool = sa.select(queue_of("") + ReactiveTask.pool).where(ReactiveTask.name == RUN.c.task).scalar_subquery()
    changes = {
        "queue": sa.func.coalesce(pool, RUN.c.queue),
        "state": RunState.WAITING,
        "pass_key": None,
        "recovery_time": None,
        "not_before": sa.func.clock_timestamp() + wait,
        **more,
    }
    if not charged:
        changes["attempts"] = sa.func.greatest(RUN.c.attempts - 1, 0)
    ours = sa.and_(RUN.c.id == run_id, RUN.c.pass_key == pass_key)
    return session.execute(sa.update(RUN).where(ours).values(**changes).returning(RUN.c.id)).first() is not None


def hand_back(
    session: Session, run_id: int, task: str, pass_key: PassKey, wait: timedelta, *, charged: bool = False, **more: Any
) -> bool:
    """To another worker, as long as there is such a task."""
    row = lock_task(session, task)
    if row is None or row.removed_at is not None:
        return cancelled(session, run_id, task, pass_key, "the task is not declared any more", None)
    return give_back(session, run_id, pass_key, wait, charged=charged, **more)


def quarantine(session: Session, task: str, reason: str, snapshot: Any, **more: Any) -> None:
    """Not started again until its input moves from what was checked, its code changes, or an operator says so."""
    why = {"quarantined_at": sa.func.now(), "quarantine_reason": reason[:ERROR_LIMIT], "quarantine_values": snapshot}
    move_on(session, task, **why, **more)


def lapsed(session: Session, run_id: int, task: str, pass_key: PassKey, why: str, *, passing: bool) -> bool:
    """`passing`: its trigger opens and closes by itself, so this was a window that was missed."""
    lock_task(session, task)
    run = _end(session, run_id, pass_key, RunState.LAPSED, error=why[:ERROR_LIMIT])
    if run is None:
        return False
    if passing:
        missed.lapsed(session, task, run_id, run.created_at, why[:ERROR_LIMIT])
    move_on(session, task, fired=False)
    return True


def cancelled(session: Session, run_id: int, task: str, pass_key: PassKey | None, reason: str, snapshot: Any) -> bool:
    """`snapshot`: the values with which it shall not start again; None if it may."""
    lock_task(session, task)
    reason = storable(reason[:ERROR_LIMIT])
    run = _end(session, run_id, pass_key, RunState.CANCELLED, error=reason)
    if run is None:
        return False
    if snapshot is not None and run.kind == RunKind.REGULAR:
        quarantine(session, task, f"cancelled: {reason}", snapshot)
    else:
        move_on(session, task)
    return True


def told(error: str, traceback: str | None) -> dict[str, Any]:
    return {
        "error": storable(error[:ERROR_LIMIT]),
        "traceback": storable(traceback[-TRACEBACK_LIMIT:]) if traceback else None,
    }
