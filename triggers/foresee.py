"""What would happen if: who waits for a parameter, who would start if it moved, what a deploy of this code would start.

Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app.db import engine
from triggers import sync, values
from triggers.ctl import Parameter, checked_name, checked_value, dependents
from triggers.model import LIVE, RUN, TASK
from triggers.registration import declared
from triggers.starting import same_input
from triggers.sync import Synced
from triggers.trigger import Trigger, from_json
from triggers.verdict import Verdict


@dataclass(frozen=True)
class Waiting:
    """A task whose trigger does not hold yet, and what it says of the parameter."""

    task: str
    sentence: str
    threshold: str | None
    distance: str | None


@dataclass(frozen=True)
class Start:
    """`held`: why it would not start all the same; None: it would."""

    task: str
    held: str | None


def waiting_for(session: Session, entity: str, parameter: str) -> list[Waiting]:
    """The tasks that the parameter keeps from firing: one of their conditions on it does not hold."""
    name = checked_name(entity, parameter)
    rows = _tasks(session, [name])
    triggers = _triggers(rows)
    found = values.read(session, triggers.items())
    nodes = [(task, node) for task, trigger in triggers.items() for node in _false(found.check(task, trigger))]
    return [
        Waiting(task, node["sentence"], node["threshold"], node["distance"])
        for task, node in nodes
        if name in ((node["entity"], node["parameter"]), (node["ref_entity"], node["ref_parameter"]))
    ]


def _false(verdict: Verdict) -> list[dict[str, Any]]:
    """The conditions that keep it from firing."""
    if verdict.fired:
        return []
    tree = verdict.tree
    return [node for node in tree.get("children", [tree]) if not node["fired"]]


def would_start(session: Session, moved: Mapping[Parameter, datetime]) -> list[Start]:
    """The tasks that would start if these parameters had these values, and do not without."""
    asked = {checked_name(*name): checked_value(name, value) for name, value in moved.items()}
    rows = _tasks(session, list(asked))
    triggers = _triggers(rows)
    found = values.read(session, triggers.items())
    before = {task for task, trigger in triggers.items() if found.check(task, trigger).fired}
    found.current |= asked
    starting = [row for row in rows if row.name not in before and found.check(row.name, triggers[row.name]).fired]
    live = set(
        session.execute(sa.select(RUN.c.task).where(LIVE, RUN.c.task.in_([row.name for row in starting]))).scalars()
    )
    return [Start(row.name, _held(row, found, triggers[row.name], live)) for row in starting]


def _held(row: Row[Any], found: values.Values, trigger: Trigger, live: set[str]) -> str | None:
    if row.name in live:
        return "it has a run already, and is looked at again when that ends"
    if row.paused:
        return "it is paused"
    if row.quarantined_at is not None and same_input(row.quarantine_values, found, row.name, trigger):
        return "it is quarantined"
    if row.start_after is not None and row.start_after > found.now:
        return f"its min_interval lets it start from {row.start_after.isoformat()}"
    return None


def _tasks(session: Session, parameters: Sequence[Parameter]) -> list[Row[Any]]:
    names = [each.task for each in dependents(session, parameters)]
    return list(session.execute(sa.select(*TASK.c).where(TASK.c.name.in_(names)).order_by(TASK.c.name)))


def _triggers(rows: Sequence[Row[Any]]) -> dict[str, Trigger]:
    return {row.name: from_json(row.trigger) for row in rows}


def plan() -> Synced:
    """What the declarations of this program would change and start if a service registered them now: it is done, and
    taken back."""
    with Session(engine()) as session:
        try:
            return sync.write(session, declared)
        finally:
            session.rollback()
