"""What is done to the items of an operation, by its kind; in the transaction of the caller.

Promises:
- An item that cannot be done has failed, with its error, and takes none of the others with it.
- One for which there is nothing to do, or which is not there any more, is skipped, and says why.
- Graphs are locked first, in the order of their processes, as by everybody.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, assert_never

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.arrays import Array
from app.claims import storm
from app.errors import BadRequest, NotFound, Unavailable
from app.jobs import manage
from processes import operate, statements
from processes.model import BROKEN_TASK, queue_of
from recovery import writing
from recovery.operations import checking, pacing
from recovery.operations.model import ItemState
from recovery.operations.order import Kind
from recovery.operations.outcome import Acted, Item, Outcome, Task, text
from stages import redriving
from stages.lookup import Known
from triggers import operate as reactive

log = logging.getLogger(__name__)

#: Somebody who holds a process for longer than this makes an item fail.
LOCK_TIMEOUT = "2s"
#: Of what is locked at the end, by others like us: the batch is made again later.
LAST_LOCK_TIMEOUT = "10s"
#: What has to be done one by one, since it does not go together, is left to the next batch after this time.
SECONDS_MOST = 1.0


def act(session: Session, task: Task, items: Sequence[Item]) -> Acted:
    session.execute(sa.select(sa.func.set_config("lock_timeout", LOCK_TIMEOUT, True)))
    turns = pacing.delays(task.rate, len(items), task.lag, random.random)
    delays = {item.position: delay for item, delay in zip(items, turns, strict=True)}
    ordered = sorted(items, key=_lock_order)
    try:
        return _tried(session, task, ordered, delays)
    except Unavailable:
        raise
    except Exception as error:  # noqa: BLE001 - whichever of them it is, the others do not suffer for it
        log.warning("operation %s: %d items are taken one by one: %s", task.operation_id, len(items), error)
    acted, end = Acted(), time.monotonic() + SECONDS_MOST
    for item in ordered:
        if acted.outcomes and time.monotonic() > end:
            break
        acted.outcomes[item.position] = _alone(session, task, item, delays, acted)
    return acted


def _lock_order(item: Item) -> tuple[Any, ...]:
    return item.process_id or 0, item.number or 0, item.subject or []


def _alone(session: Session, task: Task, item: Item, delays: Mapping[int, float], into: Acted) -> Outcome:
    try:
        acted = _tried(session, task, [item], delays)
    except Unavailable:
        raise
    except Exception as error:
        log.exception("operation %s: item %s failed", task.operation_id, item.position)
        cause = getattr(error, "orig", None) or error
        return Outcome(ItemState.FAILED, text(f"{type(cause).__name__}: {str(cause).strip()}"))
    into.actors |= acted.actors
    into.ready |= acted.ready
    return acted.outcomes[item.position]


def _tried(session: Session, task: Task, items: Sequence[Item], delays: Mapping[int, float]) -> Acted:
    with session.begin_nested():
        return _together(session, task, items, delays)


def _together(session: Session, task: Task, items: Sequence[Item], delays: Mapping[int, float]) -> Acted:
    match task.kind:
        case Kind.CHECK:
            return checking.check(session, items)
        case Kind.RECOVER:
            return checking.heal(session, task, items)
        case Kind.RESTART | Kind.RESTART_TASK:
            return _restart(session, task, items, delays)
        case Kind.ABORT:
            return _each(items, lambda item: _abort(session, task, item))
        case Kind.REDRIVE:
            return _redrive(session, items)
        case Kind.RERUN_REACTIVE:
            return _each(items, lambda item: _rerun_reactive(session, task, item))
        case Kind.RERUN_JOBS:
            return _each(items, lambda item: _rerun_job(session, item))
        case _:
            assert_never(task.kind)


def _each(items: Sequence[Item], one: Callable[[Item], Outcome]) -> Acted:
    acted = Acted()
    for item in items:
        try:
            acted.outcomes[item.position] = one(item)
        except BadRequest as refused:
            acted.outcomes[item.position] = Outcome.skipped(refused)
    return acted


def _lock(session: Session, items: Sequence[Item]) -> list[int]:
    ids = sorted({item.process_id for item in items})
    statements.locking().execute(session.connection(), {"p_ids": ids})
    return ids


def _restart(session: Session, task: Task, items: Sequence[Item], delays: Mapping[int, float]) -> Acted:
    ids = _lock(session, items)
    broken = _broken(session, ids) if task.parameters.get("broken") else None
    begun = time.monotonic()
    ready: dict[tuple[int, int], tuple[str, float]] = {}

    def one(item: Item) -> Outcome:
        if broken is not None and (item.process_id, item.number) not in broken:
            return Outcome.skipped("the task is not broken any more")
        actor, repeat = task.parameters.get("actor"), bool(task.parameters.get("repeat"))
        _, now_ready = operate.restart_in(
            session.connection(), item.process_id, item.number, actor=actor, repeat=repeat
        )
        for number, name in now_ready.items():
            ready[item.process_id, number] = name, begun + delays[item.position]
        return Outcome.done("restarted")

    acted = _each(items, one)
    acted.ready, acted.actors = ready, {name for name, _ in ready.values()}
    return acted


def spread(session: Session, acted: Acted) -> None:
    """R11: what is ready comes in its turn, and no more in a second than all of recovery may put back into a queue.
    At the end of the transaction: that is kept on a row for each queue."""
    session.execute(sa.select(sa.func.set_config("lock_timeout", LAST_LOCK_TIMEOUT, True)))
    ready, now = acted.ready, time.monotonic()
    spans = storm.delays(session, [queue_of(name) for name, _ in ready.values()])
    turns = {key: max(turn - now, span) for (key, (_, turn)), span in zip(ready.items(), spans, strict=True)}
    held = [(*key, seconds) for key, seconds in sorted(turns.items()) if seconds > 0]
    if held:
        writing.hold_back(session.connection(), held)


def _broken(session: Session, ids: Sequence[int]) -> set[tuple[int, int]]:
    these = BROKEN_TASK.c.process_id == sa.any_(sa.cast(list(ids), Array(sa.BigInteger)))
    return {
        (row[0], row[1])
        for row in session.execute(sa.select(BROKEN_TASK.c.process_id, BROKEN_TASK.c.number).where(these))
    }


def _abort(session: Session, task: Task, item: Item) -> Outcome:
    operate.abort_in(session.connection(), item.process_id, reason=task.reason)
    return Outcome.done("aborted")


def _redrive(session: Session, items: Sequence[Item]) -> Acted:
    acted = Acted()
    for (kind, stage), group in groupby(items, key=lambda item: tuple(item.subject[:2])):
        own = list(group)
        moved = redriving.redrive_in(session, Known(kind, stage), [item.subject[2] for item in own])
        for item in own:
            there = item.subject[2] in moved
            acted.outcomes[item.position] = (
                Outcome.done("redriven") if there else Outcome.skipped("it is not parked any more")
            )
    return acted


def _rerun_reactive(session: Session, task: Task, item: Item) -> Outcome:
    run_id = reactive.start_in(session, item.subject[0], record=bool(task.parameters.get("record")))
    return Outcome.done(f"run {run_id}")


def _rerun_job(session: Session, item: Item) -> Outcome:
    try:
        [made] = manage.rerun([int(item.subject[0])], session=session)
    except NotFound:
        return Outcome.skipped("the log has forgotten it")
    return Outcome.done(f"job {made}")
