"""What holds a task, or its run: a sentence for each thing, with the command that ends it where there is one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, distinct_on
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app import workers
from app.claims import Lane
from app.claims.model import is_running, is_waiting
from app.clock import Rate
from app.limits import Queue, kept_now
from app.ranks import most_rank
from triggers.definition import queue_of
from triggers.model import RUN, ReactiveHold, RunState, TaskRun
from triggers.starting import same_input
from triggers.trigger import Trigger
from triggers.values import Values
from triggers.verdict import dotted

ERROR_SHOWN = 300
HOLDS_SHOWN = 3


def iso(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")


def quarantined(row: Row[Any], found: Values, trigger: Trigger) -> bool:
    """Still: the next evaluation releases it where its input has moved."""
    return row.quarantined_at is not None and same_input(row.quarantine_values, found, row.name, trigger)


def resting(row: Row[Any], now: datetime) -> bool:
    return row.start_after is not None and row.start_after > now


def of_task(row: Row[Any], found: Values, trigger: Trigger, *, live: bool) -> Iterator[str]:
    if row.removed_at is not None:
        yield f"it is not declared any more since {iso(row.removed_at)}"
    if row.paused:
        yield f"it is paused: tidemill reactive resume {shlex.quote(row.name)}"
    if quarantined(row, found, trigger):
        yield (
            f"it is quarantined since {iso(row.quarantined_at)} ({_first_line(row.quarantine_reason)}), until its "
            f"input moves or its code changes: tidemill reactive release {shlex.quote(row.name)}"
        )
    if not live and resting(row, found.now):
        yield f"its min_interval lets it start again from {iso(row.start_after)}"
    seen = found.seen.get(row.name, {})
    for leaf in trigger.leaves:
        name = (leaf.entity, leaf.parameter)
        before, current = seen.get(name), found.current.get(name)
        if leaf.needs_seen and before is not None and current is not None and current < before:
            yield (
                f"{dotted(name)} was restated to {iso(current)}, behind the {iso(before)} that it has seen: "
                f"tidemill reactive rewind {shlex.quote(row.name)} --to {current.isoformat().replace('+00:00', 'Z')}"
            )


def of_run(session: Session, run: Row[Any], now: datetime) -> Iterator[str]:
    if run.state == RunState.RUNNING and run.recovery_time < now:
        yield (
            f"run {run.id} was taken at {iso(run.claimed_at)} by {run.claimed_by}, of which there is no sign of life "
            f"since {iso(run.recovery_time)}: the next sweep takes it back, one lease after a start of Postgres"
        )
        return
    if run.state == RunState.RUNNING:
        yield f"run {run.id} works on it since {iso(run.claimed_at)} ({run.claimed_by}); it is checked again at its end"
        return
    if run.not_before is not None and run.not_before > now:
        failure = f" after {_first_line(run.error)}" if run.error else ""
        yield f"run {run.id} backs off{failure}: it is tried again from {iso(run.not_before)}"
    else:
        yield f"run {run.id} waits in pool {run.queue.partition('.')[2]}: {_place(session, run)}"
        yield from _held_back(session, run)
    if run.queue not in workers.slots(session):
        yield f"no live worker takes {run.queue}: celery -A app worker -Q {shlex.quote(run.queue)}"


def _first_line(text: str | None) -> str:
    line = (text or "").strip().partition("\n")[0]
    return line if len(line) <= ERROR_SHOWN else line[: ERROR_SHOWN - 1] + "…"


def _place(session: Session, run: Row[Any]) -> str:
    ready = TaskRun.ready(Lane.MAIN)
    mine = sa.select(ready).where(RUN.c.id == run.id).scalar_subquery()
    before = sa.and_(
        TaskRun.queue == run.queue,
        is_waiting(TaskRun),
        ready <= sa.func.now(),
        sa.tuple_(TaskRun.rank, ready, TaskRun.id) < sa.tuple_(run.rank, mine, run.id),
    )
    ahead = session.execute(sa.select(sa.func.count()).where(before)).scalar_one()
    running = session.execute(_running(run.queue)).scalar_one()
    limits = session.execute(sa.select(Queue).where(Queue.name == run.queue)).scalar_one_or_none()
    words = [f"{ahead} before it", f"{running} running"]
    if limits is not None and limits.max_parallel is not None:
        full = ": it is full" if running >= limits.max_parallel else ""
        words[1] += f" of {limits.max_parallel}{full}"
    if limits is not None and limits.rate is not None:
        words.append(f"at most {Rate(limits.rate)} may start")
    if limits is not None and limits.paused:
        words.append(f"the pool is paused: tidemill queue resume {shlex.quote(run.queue)}")
    return ", ".join(words)


def _running(queue: str) -> sa.Select[int]:
    return sa.select(sa.func.count()).where(TaskRun.queue == queue, is_running(TaskRun))


def _held_back(session: Session, run: Row[Any]) -> Iterator[str]:
    """T21: slots are free, and all of them are kept for more important tasks."""
    kept = sa.func.array(kept_now().scalar_subquery(), type_=ARRAY(sa.SmallInteger))
    row = session.execute(
        sa.select(Queue.max_parallel, kept.label("kept")).where(Queue.name == run.queue)
    ).one_or_none()
    if row is None or not row.kept:
        return
    most = most_rank(row.max_parallel, session.execute(_running(run.queue)).scalar_one(), row.kept)
    if most is None or run.rank <= most:
        return
    better = sa.and_(ReactiveHold.pool == run.queue.partition(".")[2], -ReactiveHold.priority < run.rank)
    found = session.execute(_holds(better)).all()
    for each in found[:HOLDS_SHOWN]:
        yield (
            f"run {run.id} is held for {each.task} until {iso(each.until)}: a slot of pool {each.pool} is kept for it, "
            f"while {_supply(each)}"
        )
    if len(found) > HOLDS_SHOWN:
        yield f"and for {len(found) - HOLDS_SHOWN} more of a higher priority"
    if not found:
        yield f"run {run.id} is held: the slots that are free are kept for priority {-most} and higher"


def kept_for(session: Session, task: str) -> Iterator[str]:
    """T21: what is kept for a task that waits for its trigger, because a run will deliver what it lacks."""
    for each in session.execute(_holds(ReactiveHold.task == task)):
        yield f"a slot is kept for it in pool {each.pool} until {iso(each.until)}, while {_supply(each)}"


def _holds(condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Those that have not been spent, of each task the one that lasts longest, as a claim obeys them."""
    c = ReactiveHold
    slots = sa.func.array(kept_now().scalar_subquery(), type_=ARRAY(sa.SmallInteger))
    best = (
        sa.select(c.task, c.pool, c.priority, c.until, c.run_id, c.producer, RUN.c.state)
        .join(Queue, Queue.name == queue_of("") + c.pool)
        .outerjoin(RUN, RUN.c.id == c.run_id)
        .where(condition, c.until > sa.func.clock_timestamp(), -c.priority == sa.any_(slots))
        .ext(distinct_on(c.task))
        .order_by(c.task, c.until.desc(), c.run_id)
        .subquery()
    )
    return sa.select(best).order_by(best.c.priority.desc(), best.c.task)


def _supply(hold: Row[Any]) -> str:
    words = {RunState.RUNNING: "works", RunState.WAITING: "waits for its turn"}
    return f"run {hold.run_id} of {hold.producer} {words.get(hold.state, 'has just ended')}"


def then(run: dict[str, Any], at: datetime) -> Iterator[str]:
    """What held the run of a past evaluation at that moment, as far as its row tells today."""
    started, ended = run.get("started_at"), run.get("ended_at")
    if not run or (ended is not None and ended <= at):
        return
    number, until = run["id"], started or ended
    if started is not None and started <= at:
        yield f"run {number} worked on it, " + (f"until {iso(ended)}" if ended else "and works still")
    else:
        yield f"run {number} waited in pool {run['queue'].partition('.')[2]}, " + (
            f"until {iso(until)}" if until else "and waits still"
        )
