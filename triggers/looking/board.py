"""The board of reactive tasks: by name, a page at a time, each with what it does and why it does nothing else.

What it promises:

- A page is read by key. Only the tasks that are on it are evaluated: the board costs as much with ten thousand tasks.
- `state` is that of `triggers.why`, and two words more for a run that waits: `held` (T21) and `backing off` (T22).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app.arrays import Array
from app.words import first_line
from triggers import holds, values
from triggers.looking.rooms import Room, rooms
from triggers.model import LIVE, RUN, TASK, MissedWindow, TaskRun
from triggers.starting import readable
from triggers.trigger import Trigger
from triggers.verdict import Verdict
from triggers.why import as_evaluated, state_of

STATES = ("running", "waiting", "held", "backing off", "resting", "idle", "paused", "quarantined", "missed", "removed")
#: Windows that were missed for so long are told of.
MISSED_OF = timedelta(days=1)
MISSED_MOST = 100


@dataclass(frozen=True)
class Line:
    """`reason`: what it waits for, or what holds it, in a sentence. `missed`: windows, in the last day."""

    name: str
    pool: str
    priority: int
    state: str
    reason: str
    failures: int
    missed: int
    run_id: int | None
    run_state: str | None
    run_at: datetime | None
    run_took: timedelta | None
    error: str | None


@dataclass(frozen=True)
class Wanted:
    state: str | None = None
    pool: str | None = None
    #: In the name, in small or capital letters.
    text: str | None = None
    after: str | None = None


def page(session: Session, wanted: Wanted, limit: int) -> list[Line]:
    found = rooms(session)
    names = sa.select(TASK.c.name).order_by(TASK.c.name).limit(limit)
    if wanted.after is not None:
        names = names.where(TASK.c.name > wanted.after)
    if wanted.pool is not None:
        names = names.where(TASK.c.pool == wanted.pool)
    if wanted.text is not None:
        names = names.where(TASK.c.name.icontains(wanted.text, autoescape=True))
    names = names.where(_in_state(wanted.state, found))
    return of(session, list(session.execute(names).scalars()), found)


def of(session: Session, names: Sequence[str], found: Mapping[str, Room] | None = None) -> list[Line]:
    """These tasks, in the order of their names."""
    if not names:
        return []
    rows = session.execute(sa.select(*TASK.c).where(TASK.c.name.in_(names)).order_by(TASK.c.name)).all()
    last, missed = _last(session, names), _missed(session, names)
    triggers = {row.name: readable(row.name, row.trigger) for row in rows}
    read = values.read(session, [(name, trigger) for name, trigger in triggers.items() if trigger is not None])
    pools = rooms(session) if found is None else found
    return [
        _line(row, triggers[row.name], last.get(row.name), missed.get(row.name, 0), read, pools.get(row.pool))
        for row in rows
    ]


def _in_state(state: str | None, found: Mapping[str, Room]) -> sa.ColumnElement[bool]:
    now = sa.func.now()
    waiting = sa.select(RUN.c.task).where(TaskRun.state == sa.literal_column("'waiting'"))
    backing = RUN.c.not_before > now
    declared, free = TASK.c.removed_at.is_(None), TASK.c.name.not_in(sa.select(RUN.c.task).where(LIVE))
    clear = sa.and_(declared, TASK.c.paused.is_(False), TASK.c.quarantined_at.is_(None))
    rests = sa.func.coalesce(TASK.c.start_after > now, sa.false())
    match state:
        case None:
            return declared
        case "running":
            return TASK.c.name.in_(sa.select(RUN.c.task).where(TaskRun.state == sa.literal_column("'running'")))
        case "waiting":
            return TASK.c.name.in_(waiting)
        case "backing off":
            return TASK.c.name.in_(waiting.where(backing))
        case "held":
            return TASK.c.name.in_(waiting.where(~sa.func.coalesce(backing, sa.false()), _held(found)))
        case "paused":
            return sa.and_(declared, TASK.c.paused)
        case "quarantined":
            return sa.and_(declared, TASK.c.quarantined_at.is_not(None))
        case "missed":
            return TASK.c.name.in_(sa.select(MissedWindow.task).where(MissedWindow.closed_at > now - MISSED_OF))
        case "resting":
            return sa.and_(clear, TASK.c.min_interval.is_not(None), rests, free)
        case "idle":
            return sa.and_(clear, ~rests, free)
        case _:
            return TASK.c.removed_at.is_not(None)


def _held(found: Mapping[str, Room]) -> sa.ColumnElement[bool]:
    """Few pools keep slots at a time."""
    keeping = [room for room in found.values() if room.kept and not room.full]
    each = [sa.and_(RUN.c.queue == room.queue, RUN.c.rank > room.most) for room in keeping]
    return sa.or_(sa.false(), *each)


def _of_names(names: Sequence[str]) -> Any:
    given = sa.func.unnest(sa.bindparam("names", list(names), type_=Array(sa.Text)))
    return given.table_valued(sa.column("name", sa.Text)).render_derived(name="given")


def _last(session: Session, names: Sequence[str]) -> dict[str, Row[Any]]:
    """The last run of each, which is also the one that is live."""
    given, c = _of_names(names), RUN.c
    words = (c.id, c.task, c.state, c.queue, c.rank, c.created_at, c.started_at, c.ended_at, c.not_before)
    last = (
        sa.select(*words, c.claimed_by, c.error).where(c.task == given.c.name).order_by(c.id.desc()).limit(1).lateral()
    )
    return {row.task: row for row in session.execute(sa.select(*last.c).select_from(given.join(last, sa.true())))}


def _missed(session: Session, names: Sequence[str]) -> dict[str, int]:
    given, m = _of_names(names), MissedWindow
    late = sa.select(m.closed_at).where(m.task == given.c.name).order_by(m.id.desc()).limit(MISSED_MOST).lateral("late")
    query = (
        sa.select(given.c.name, sa.func.count())
        .select_from(given.join(late, sa.true()))
        .where(late.c.closed_at > sa.func.now() - MISSED_OF)
        .group_by(given.c.name)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def _line(
    row: Row[Any], trigger: Trigger | None, run: Row[Any] | None, missed: int, read: values.Values, room: Room | None
) -> Line:
    live = run if run is not None and run.state in ("waiting", "running") else None
    state, reason = _state(row, trigger, live, read, room)
    at = None if run is None else run.started_at or run.created_at
    took = run.ended_at - run.started_at if run is not None and run.started_at and run.ended_at else None
    last = (None,) * 5 if run is None else (run.id, str(run.state), at, took, first_line(run.error))
    return Line(row.name, row.pool, row.priority, state, reason, row.failures, missed, *last)


def _state(
    row: Row[Any], trigger: Trigger | None, run: Row[Any] | None, read: values.Values, room: Room | None
) -> tuple[str, str]:
    if trigger is None:
        return ("removed" if row.removed_at else "idle"), "this release cannot read its trigger"
    as_evaluated(row, trigger, read)
    verdict = read.check(row.name, trigger)
    state = state_of(row, run, verdict, read, trigger)
    match state:
        case "removed":
            return state, "no module declares it any more"
        case "running" if run is not None:
            return state, f"run {run.id} works on it ({run.claimed_by})"
        case "waiting" if run is not None:
            return _waiting(run, read.now, room)
        case "paused":
            return state, "somebody paused it" + ("; its trigger holds" if verdict.fired else "")
        case "quarantined":
            return state, first_line(row.quarantine_reason) or "its runs failed too often in a row"
        case "resting":
            return state, f"its min_interval lets it start again from {holds.iso(row.start_after)}"
        case "ready":
            return state, "its trigger holds: the next evaluation starts it"
        case _:
            return state, _lacking(verdict)


def _lacking(verdict: Verdict) -> str:
    tree = verdict.tree
    lacking = [node["sentence"] for node in tree.get("children", [tree]) if not node["fired"]]
    return f"{lacking[0]} (and {len(lacking) - 1} more)" if len(lacking) > 1 else str(lacking[0])


def _waiting(run: Row[Any], now: datetime, room: Room | None) -> tuple[str, str]:
    if run.not_before is not None and run.not_before > now:
        failure = f" after {first_line(run.error)}" if run.error else ""
        return "backing off", f"run {run.id} is tried again from {holds.iso(run.not_before)}{failure}"
    if room is None:
        return "waiting", f"run {run.id} waits"
    free = not room.paused and room.slots > 0 and room.holds(run.rank)
    return ("held" if free else "waiting"), room.stands(run.rank, run.id)
