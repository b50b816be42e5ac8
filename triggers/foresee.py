"""What would happen if: who waits for a parameter, who would start if it moved, what a deploy of this code would start.

Nothing here changes anything: what has to be tried is taken back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app import locks
from app.db import engine
from app.locks import Lock
from triggers import sync, values
from triggers.ctl import Parameter, advance_many, checked_name, checked_value, dependents
from triggers.holds import iso, quarantined, resting
from triggers.model import LIVE, RUN, TASK, ReactiveLeaf
from triggers.registration import declared
from triggers.starting import readable
from triggers.sync import Synced
from triggers.trigger import Trigger
from triggers.verdict import Verdict
from triggers.why import as_evaluated


@dataclass(frozen=True)
class Waiting:
    """A task whose trigger does not hold yet, and what it says of the parameter: the value from which on the condition
    holds and how far that is, where this can be said."""

    task: str
    entity: str
    parameter: str
    threshold: str | None
    distance: str | None
    distance_seconds: float | None
    sentence: str


@dataclass(frozen=True)
class Start:
    """`held`: why it would not start all the same; None: it would."""

    task: str
    pool: str
    held: str | None


@dataclass(frozen=True)
class Plan:
    """`synced`: as a service would tell it. `what`: of a changed task, the words of its declaration that differ."""

    synced: Synced
    what: Mapping[str, tuple[str, ...]]
    starts: tuple[Start, ...]


def waiting_for(session: Session, entity: str, parameter: str | None = None) -> list[Waiting]:
    """The tasks that the parameter, or any of the entity, keeps from firing, the nearest first."""
    names = [checked_name(entity, parameter)] if parameter is not None else _named(session, entity)
    rows = _tasks(session, names)
    triggers = _triggers(rows)
    found = _as_evaluated(values.read(session, triggers.items()), rows, triggers)
    waiting = [
        Waiting(task, *name, *(node[word] for word in ("threshold", "distance", "distance_seconds", "sentence")))
        for task, trigger in triggers.items()
        for node in _false(found.check(task, trigger))
        for name in names
        if _lacks(node, name)
    ]
    return sorted(waiting, key=lambda each: (each.parameter, each.distance_seconds is None, each.distance_seconds or 0))


def _named(session: Session, entity: str) -> list[Parameter]:
    """The parameters of the entity that triggers name."""
    checked_name(entity, "any")
    leaf = ReactiveLeaf
    own = sa.select(leaf.entity, leaf.parameter).where(leaf.entity == entity)
    reference = sa.select(leaf.ref_entity, leaf.ref_parameter).where(leaf.ref_entity == entity)
    rows: Any = session.execute(sa.union(own, reference))
    return sorted((each, word) for each, word in rows)


def _false(verdict: Verdict) -> list[dict[str, Any]]:
    """The conditions that keep it from firing."""
    if verdict.fired:
        return []
    tree = verdict.tree
    return [node for node in tree.get("children", [tree]) if not node["fired"]]


def _lacks(node: Mapping[str, Any], name: Parameter) -> bool:
    """A reference that moves on makes nothing true: it is waited for only where it has no value."""
    own, missing = name == (node["entity"], node["parameter"]), node["missing"]
    if "reference" in missing:
        return name == (node["ref_entity"], node["ref_parameter"]) or (own and "current" in missing)
    return own


def would_start(session: Session, moved: Mapping[Parameter, datetime]) -> list[Start]:
    """The tasks that would start if these parameters had these values, and do not without: a quarantined one may."""
    asked = {checked_name(*name): checked_value(name, value) for name, value in moved.items()}
    rows = _tasks(session, list(asked))
    triggers = _triggers(rows)
    found = _as_evaluated(values.read(session, triggers.items()), rows, triggers)
    kept = {row.name for row in rows if row.name in triggers and quarantined(row, found, triggers[row.name])}
    before = {task for task, trigger in triggers.items() if found.check(task, trigger).fired} - kept
    found.current |= asked
    _as_evaluated(found, rows, triggers)
    fired = {task for task, trigger in triggers.items() if found.check(task, trigger).fired}
    return _starts(session, [row for row in rows if row.name in fired - before], triggers, found)


def would_move(moved: Mapping[Parameter, datetime]) -> set[Parameter]:
    """Those that an advance would move; refused as the advance would be."""
    with Session(engine()) as session:
        try:
            return advance_many(moved, session=session)
        finally:
            session.rollback()


def _starts(
    session: Session, rows: Sequence[Row[Any]], triggers: Mapping[str, Trigger], found: values.Values
) -> list[Start]:
    names = [row.name for row in rows]
    live = set(session.execute(sa.select(RUN.c.task).where(LIVE, RUN.c.task.in_(names))).scalars())
    return [Start(row.name, row.pool, _held(row, found, triggers[row.name], live)) for row in rows]


def _held(row: Row[Any], found: values.Values, trigger: Trigger, live: set[str]) -> str | None:
    if row.name in live:
        return "it has a run already, and is looked at again when that ends"
    if row.paused:
        return "it is paused"
    if quarantined(row, found, trigger):
        return "it is quarantined"
    if resting(row, found.now):
        return f"its min_interval lets it start from {iso(row.start_after)}"
    return None


def _tasks(session: Session, parameters: Sequence[Parameter]) -> list[Row[Any]]:
    return _rows(session, [each.task for each in dependents(session, parameters)])


def _rows(session: Session, names: Sequence[str]) -> list[Row[Any]]:
    return list(session.execute(sa.select(*TASK.c).where(TASK.c.name.in_(names)).order_by(TASK.c.name)))


def _triggers(rows: Sequence[Row[Any]]) -> dict[str, Trigger]:
    """Without those that another release has stored and this one cannot read."""
    found = {row.name: readable(row.name, row.trigger) for row in rows}
    return {name: trigger for name, trigger in found.items() if trigger is not None}


def _as_evaluated(found: values.Values, rows: Sequence[Row[Any]], triggers: Mapping[str, Trigger]) -> values.Values:
    for row in rows:
        if row.name in triggers:
            as_evaluated(row, triggers[row.name], found)
    return found


def plan() -> Plan:
    """What the declarations of this program would change and start if a service registered them now: it is done, and
    taken back."""
    with Session(engine()) as session:
        try:
            locks.take(session, Lock.REACTIVE_TASKS)
            before = {row.name: row for row in _rows(session, list(declared))}
            synced = sync.write(session, declared)
            after = _rows(session, [*synced.changed, *synced.start_at_once])
            what = {row.name: _differing(before[row.name], row) for row in after if row.name in synced.changed}
            starting = [row for row in after if row.name in synced.start_at_once]
            triggers = _triggers(starting)
            found = values.read(session, triggers.items())
            return Plan(synced, what, tuple(_starts(session, starting, triggers, found)))
        finally:
            session.rollback()


def _differing(before: Row[Any], after: Row[Any]) -> tuple[str, ...]:
    words = (*sync.RELEASING, *sync.COLUMNS)
    found = tuple(word for word in words if getattr(before, word) != getattr(after, word))
    return ("declared again", *found) if before.removed_at is not None else found
