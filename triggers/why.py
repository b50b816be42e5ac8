"""Why a task runs, or does not (T24): its trigger's verdict with the values that it rests on, and what holds it.

For now, or for a past evaluation: that is read again from what was stored with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app.claims import Lane
from app.claims.model import is_running, is_waiting
from app.errors import NotFound
from app.limits import Queue
from triggers import values
from triggers.model import LIVE, RUN, TASK, Evaluation, RunState, TaskRun
from triggers.operate import unknown
from triggers.starting import same_input
from triggers.trigger import from_json
from triggers.verdict import Verdict, explain


@dataclass(frozen=True)
class Why:
    """`state`: `removed`, `paused`, `quarantined`, `running`, `waiting`, `resting` (its `min_interval`), `ready` (the next
    evaluation starts it), or `idle` (its trigger does not hold). `holds`: a sentence for each thing that holds it."""

    task: str
    at: datetime
    fired: bool
    state: str
    tree: dict[str, Any]
    holds: tuple[str, ...] = ()
    run: dict[str, Any] = field(default_factory=dict)
    #: Of a past evaluation: who made it.
    cause: str | None = None

    def explain(self) -> str:
        return explain(self.tree)


def why(session: Session, name: str, at: datetime | None = None) -> Why:
    row = session.execute(sa.select(*TASK.c).where(TASK.c.name == name)).one_or_none()
    if row is None:
        raise unknown(session, name)
    return _now(session, row) if at is None else _then(session, name, at)


def _then(session: Session, name: str, at: datetime) -> Why:
    """The last evaluation that was stored by then: its outcome holds until the next one."""
    of_task = sa.select(Evaluation).where(Evaluation.task == name, Evaluation.at <= at)
    found = session.execute(of_task.order_by(Evaluation.at.desc(), Evaluation.id.desc()).limit(1)).scalar_one_or_none()
    if found is None:
        first = session.execute(sa.select(sa.func.min(Evaluation.at)).where(Evaluation.task == name)).scalar_one()
        kept = f"the first that is kept is of {first.isoformat()}" if first else "none is kept of it"
        raise NotFound(f"{name} has no evaluation of {at.isoformat()} or before: {kept}")
    pairs = values.windows(found.values)
    current = {key: now for key, (_, now) in pairs.items() if now is not None}
    seen = {key: before for key, (before, _) in pairs.items() if before is not None}
    verdict = from_json(found.trigger).check(found.at, current, seen)
    run = {} if found.run_id is None else _told_run(session, sa.and_(RUN.c.id == found.run_id))
    return Why(name, found.at, found.fired, "fired" if found.fired else "idle", verdict.tree, (), run, found.cause)


def _now(session: Session, row: Row[Any]) -> Why:
    trigger = from_json(row.trigger)
    found = values.read(session, [(row.name, trigger)])
    verdict = found.check(row.name, trigger)
    run = session.execute(sa.select(*RUN.c).where(TaskRun.task == row.name, LIVE)).one_or_none()
    holds: list[str] = []
    if row.removed_at is not None:
        holds.append(f"it is not declared any more since {row.removed_at.isoformat()}")
    if row.paused:
        holds.append(f"it is paused: tidemill reactive resume {row.name}")
    if row.quarantined_at is not None and same_input(row.quarantine_values, found, row.name, trigger):
        holds.append(
            f"it is quarantined since {row.quarantined_at.isoformat()} ({row.quarantine_reason}), until its input moves or "
            f"its code changes: tidemill reactive release {row.name}"
        )
    if run is None and row.start_after is not None and row.start_after > found.now:
        holds.append(f"its min_interval lets it start again from {row.start_after.isoformat()}")
    if run is not None:
        holds += _of_run(session, run, found.now)
    told = _told_run(session, RUN.c.id == run.id) if run is not None else _told_run(session, RUN.c.task == row.name)
    return Why(row.name, found.now, verdict.fired, _state(row, run, verdict, found), verdict.tree, tuple(holds), told)


def _state(row: Row[Any], run: Row[Any] | None, verdict: Verdict, found: values.Values) -> str:
    if run is not None:
        return str(run.state)
    if row.removed_at is not None:
        return "removed"
    if row.paused:
        return "paused"
    if row.quarantined_at is not None:
        return "quarantined"
    if row.start_after is not None and row.start_after > found.now:
        return "resting"
    return "ready" if verdict.fired else "idle"


def _of_run(session: Session, run: Row[Any], now: datetime) -> list[str]:
    if run.state == RunState.RUNNING:
        return [
            f"run {run.id} works on it since {run.claimed_at.isoformat()} ({run.claimed_by}); it is checked at its end"
        ]
    if run.not_before is not None and run.not_before > now:
        failure = f" after {run.error}" if run.error else ""
        return [f"run {run.id} backs off{failure}: it is tried again from {run.not_before.isoformat()}"]
    return [f"run {run.id} waits in pool {run.queue.partition('.')[2]}: {_place(session, run)}"]


def _place(session: Session, run: Row[Any]) -> str:
    ready = TaskRun.ready(Lane.MAIN)
    mine = sa.func.greatest(run.due_at, run.not_before)
    before = sa.and_(
        TaskRun.queue == run.queue,
        is_waiting(TaskRun),
        ready <= sa.func.now(),
        sa.tuple_(TaskRun.rank, ready, TaskRun.id) < sa.tuple_(run.rank, mine, run.id),
    )
    ahead = session.execute(sa.select(sa.func.count()).where(before)).scalar_one()
    running = session.execute(
        sa.select(sa.func.count()).where(TaskRun.queue == run.queue, is_running(TaskRun))
    ).scalar_one()
    limits = session.execute(sa.select(Queue).where(Queue.name == run.queue)).scalar_one_or_none()
    words = [f"{ahead} before it", f"{running} running"]
    if limits is not None and limits.max_parallel is not None:
        words[1] += f" of {limits.max_parallel}"
    if limits is not None and limits.rate is not None:
        words.append("starts are limited by rate")
    if limits is not None and limits.paused:
        words.append(f"the pool is paused: tidemill queue resume {run.queue}")
    return ", ".join(words)


def _told_run(session: Session, condition: Any) -> dict[str, Any]:
    """The latest that there is."""
    c = RUN.c
    query = sa.select(c.id, c.state, c.kind, c.created_at, c.started_at, c.ended_at, c.attempts, c.claimed_by, c.error)
    found = session.execute(query.where(condition).order_by(c.id.desc()).limit(1)).mappings().one_or_none()
    return {} if found is None else dict(found)
