"""Why a task runs, or does not (T24): its trigger's verdict with the values that it rests on, and what holds it.

For now, for a past evaluation (that is read again from what was stored with it), or for values that a person thinks of
(`triggers.preview`). Reads only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app.errors import NotFound
from triggers import holds, values
from triggers.ctl import checked_value
from triggers.lookup import unknown
from triggers.model import LIVE, RUN, TASK, Evaluation, TaskRun
from triggers.trigger import Trigger, from_json
from triggers.verdict import Verdict, explain

#: Each state, for people.
STATES = {
    "removed": "removed: no module declares it any more",
    "paused": "paused by an operator",
    "quarantined": "quarantined",
    "running": "running",
    "waiting": "fired: its run waits",
    "resting": "resting until its min_interval is over",
    "ready": "fired: the next evaluation starts it",
    "idle": "idle: its trigger does not hold",
    "fired": "fired",
}


@dataclass(frozen=True)
class Why:
    """`state`: `removed`, `paused`, `quarantined`, `running`, `waiting`, `resting` (its `min_interval`), `ready` (the
    next evaluation starts it), or `idle` (its trigger does not hold); of a past evaluation `fired` or `idle`. `holds`:
    a sentence for each thing that holds it. `kept`: the slots that are kept for it while it waits for its trigger.
    `run`: that which is live, else the last; of a past evaluation, its own."""

    task: str
    at: datetime
    fired: bool
    state: str
    tree: dict[str, Any]
    holds: tuple[str, ...] = ()
    run: dict[str, Any] = field(default_factory=dict)
    #: Of a past evaluation: who made it.
    cause: str | None = None
    kept: tuple[str, ...] = ()

    def explain(self) -> str:
        return explain(self.tree)


def why(session: Session, name: str, at: datetime | None = None) -> Why:
    row = registered(session, name)
    if at is not None:
        return _then(session, name, checked_value((name, "at"), at))
    trigger = from_json(row.trigger)
    return assess(session, row, trigger, values.read(session, [(name, trigger)]))


def registered(session: Session, name: str) -> Row[Any]:
    row = session.execute(sa.select(*TASK.c).where(TASK.c.name == name)).one_or_none()
    if row is None:
        raise unknown(session, name)
    return row


def _then(session: Session, name: str, at: datetime) -> Why:
    """The last evaluation that was stored by then: its outcome holds until the next one."""
    of_task = sa.select(Evaluation).where(Evaluation.task == name, Evaluation.at <= at)
    found = session.execute(of_task.order_by(Evaluation.at.desc(), Evaluation.id.desc()).limit(1)).scalar_one_or_none()
    if found is None:
        earliest = sa.select(sa.func.min(Evaluation.at)).where(Evaluation.task == name)
        first: datetime | None = session.execute(earliest).scalar_one()
        kept = "none is kept of it" if first is None else f"the first that is kept is of {first.isoformat()}"
        raise NotFound(f"{name} has no evaluation of {at.isoformat()} or before: {kept}")
    return _as_it_was(session, found, at)


def evaluated(session: Session, name: str, number: int) -> Why:
    """One evaluation, by its number."""
    of_task = sa.select(Evaluation).where(Evaluation.task == name, Evaluation.id == number)
    found = session.execute(of_task).scalar_one_or_none()
    if found is None:
        raise NotFound(f"{name} has no evaluation {number}: it is not kept any more, or is of another task")
    return _as_it_was(session, found, found.at)


def _as_it_was(session: Session, found: Evaluation, at: datetime) -> Why:
    pairs = values.windows(found.values)
    current = {key: now for key, (_, now) in pairs.items() if now is not None}
    seen = {key: before for key, (before, _) in pairs.items() if before is not None}
    verdict = from_json(found.trigger).check(found.at, current, seen)
    run = {} if found.run_id is None else _told_run(session, RUN.c.id == found.run_id)
    state, held = "fired" if found.fired else "idle", tuple(holds.then(run, at))
    return Why(found.task, found.at, found.fired, state, verdict.tree, held, run, found.cause)


def assess(session: Session, row: Row[Any], trigger: Trigger, found: values.Values) -> Why:
    """The task as the next evaluation would find it, with these values."""
    as_evaluated(row, trigger, found)
    verdict = found.check(row.name, trigger)
    run = session.execute(sa.select(*RUN.c).where(TaskRun.task == row.name, LIVE)).one_or_none()
    held = list(holds.of_task(row, found, trigger, live=run is not None))
    if run is not None:
        held += holds.of_run(session, run, found.now)
    kept = tuple(holds.kept_for(session, row.name)) if run is None and not verdict.fired else ()
    told = _told_run(session, RUN.c.task == row.name if run is None else RUN.c.id == run.id)
    state = state_of(row, run, verdict, found, trigger)
    return Why(row.name, found.now, verdict.fired, state, verdict.tree, tuple(held), told, kept=kept)


def as_evaluated(row: Row[Any], trigger: Trigger, found: values.Values) -> None:
    """T12: with `first_run="baseline"`, an evaluation takes what is there at first for seen."""
    if row.first_run == "baseline":
        seen = found.seen.setdefault(row.name, {})
        for leaf in trigger.leaves:
            name = (leaf.entity, leaf.parameter)
            if leaf.needs_seen and name in found.current:
                seen.setdefault(name, found.current[name])


def state_of(row: Row[Any], run: Row[Any] | None, verdict: Verdict, found: values.Values, trigger: Trigger) -> str:
    if run is not None:
        return str(run.state)
    if row.removed_at is not None:
        return "removed"
    if row.paused:
        return "paused"
    if holds.quarantined(row, found, trigger):
        return "quarantined"
    if holds.resting(row, found.now):
        return "resting"
    return "ready" if verdict.fired else "idle"


def _told_run(session: Session, condition: Any) -> dict[str, Any]:
    """The latest that there is."""
    c = RUN.c
    words = (c.id, c.state, c.kind, c.queue, c.created_at, c.started_at, c.ended_at, c.not_before, c.attempts)
    query = sa.select(*words, c.claimed_by, c.requested_by, c.record, c.window_from, c.window_to, c.outputs, c.error)
    found = session.execute(query.where(condition).order_by(c.id.desc()).limit(1)).mappings().one_or_none()
    return {} if found is None else dict(found)
