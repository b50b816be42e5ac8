"""Deciding which tasks start: the one place that makes regular runs, whoever asks for it.

Promises:
- At most one run of a task is waiting or running: a unique index says so, and nothing here waits for another's lock.
- The row of a task is locked before its values are read, and the end of a run locks it too: so a decision rests either
  on what was seen before the end, and finds the run still there, or on what was seen after it.
- What is decided is stored when it differs from what was stored last, with all that it rests on.
- A trigger that this release cannot read, which a newer one has stored, is told and passed over; the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from app import faults
from app.arrays import Array
from app.prepared import Prepared
from triggers import values
from triggers.launching import Decision, launch
from triggers.model import IS_BASELINE, LIVE, TASK, Ctl, CtlSeen, ReactiveLeaf, ReactiveTask, RunId, TaskRun
from triggers.trigger import Trigger, from_json
from triggers.values import Values

log = logging.getLogger(__name__)
#: What reading a stored trigger comes to that this release does not understand.
UNREADABLE = (ValueError, TypeError, AttributeError, LookupError)


@dataclass(frozen=True)
class Started:
    """`runs`: the new ones, by task. `lapsed`: tasks whose trigger held when it was last stored, and does not now.
    `unreadable`: tasks whose trigger this release cannot read. `left`: fired, but more than `most`. `decided`: those
    that were looked at; of the others, each cannot start now, or somebody else is changing it. `changed`: those whose
    generation moved by it, because what is there was taken for seen, or ended their quarantine."""

    runs: dict[str, RunId]
    lapsed: int = 0
    changed: frozenset[str] = frozenset()
    decided: frozenset[str] = frozenset()
    unreadable: int = 0
    left: int = 0


def enabled(now: Any) -> sa.ColumnElement[bool]:
    """Tasks that may start; a quarantined one may, if its input has moved."""
    rested = sa.or_(ReactiveTask.start_after.is_(None), ReactiveTask.start_after <= now)
    return sa.and_(ReactiveTask.removed_at.is_(None), ~ReactiveTask.paused, rested)


def startable(now: Any) -> sa.ColumnElement[bool]:
    """Those of them that have no run."""
    return sa.and_(enabled(now), ~sa.exists().where(TaskRun.task == ReactiveTask.name, LIVE))


def start_ready(session: Session, names: Sequence[str], cause: str = "polling", most: int | None = None) -> Started:
    """Checks the triggers of these tasks and makes a run of each whose trigger holds, but at most `most`. Tasks that
    another transaction is changing just now are left to whoever comes next."""
    asked = _locking().execute(session.connection(), {"names": sorted(set(names))}).all()
    triggers = {row.name: trigger for row in asked if (trigger := readable(row.name, row.trigger)) is not None}
    locked = [row for row in asked if row.name in triggers]
    unreadable = len(asked) - len(locked)
    if not locked:
        return Started({}, unreadable=unreadable, decided=frozenset(row.name for row in asked))
    found = values.read(session, triggers.items())
    firsts = [(row.name, triggers[row.name]) for row in locked if row.first_run == "baseline"]
    baselined = baseline(session, found, firsts)
    decided = []
    for row in locked:
        name, trigger = row.name, triggers[row.name]
        if row.quarantined_at is None or not same_input(row.quarantine_values, found, name, trigger):
            decided.append(Decision(row, found.check(name, trigger).fired, found.snapshot(name, trigger)))
    released = [each.task.name for each in decided if each.task.quarantined_at is not None]
    _release(session, released)
    fired = [each for each in decided if each.fired]
    over = [each for each in decided if each.task.fired and not each.fired]
    runs = launch(session, [*fired[:most], *over], found.now, cause)
    faults.reach("start.before_commit")
    looked_at = frozenset(row.name for row in asked)
    changed = baselined.union(released)
    return Started(runs, len(over), changed, looked_at, unreadable, len(fired) - len(fired[:most]))


def readable(task: str, stored: Any) -> Trigger | None:
    try:
        return from_json(stored)
    except UNREADABLE as error:
        log.error("%s is not evaluated: %s", task, error)
        return None


@cache
def _locking() -> Prepared:
    # The time now, not that at which the transaction began: a rest that the caller saw end must be over here too.
    free = startable(sa.func.clock_timestamp())
    named = ReactiveTask.name == sa.any_(sa.bindparam("names", type_=Array(sa.Text)))
    query = sa.select(*TASK.c).where(named, free).order_by(ReactiveTask.id)
    return Prepared("tasks_to_start", query.with_for_update(skip_locked=True))


def same_input(stored: Any, found: Values, task: str, trigger: Trigger) -> bool:
    """Whether the current values are still those that the task was quarantined with."""
    now, then = values.windows(found.snapshot(task, trigger)), values.windows(stored or ())
    return {name: current for name, (_, current) in now.items()} == {
        name: current for name, (_, current) in then.items()
    }


def baseline(session: Session, found: Values, tasks: Sequence[tuple[str, Trigger]]) -> frozenset[str]:
    """T12: what is there at first counts as seen. For tasks whose rows are locked; returns whom it concerned."""
    rows = []
    for task, trigger in tasks:
        seen = found.seen.setdefault(task, {})
        for leaf in trigger.leaves:
            name = (leaf.entity, leaf.parameter)
            if leaf.needs_seen and name not in seen and (current := found.current.get(name)) is not None:
                seen[name] = current
                rows.append({"task": task, "entity": name[0], "parameter": name[1], "value": current})
    names = frozenset(str(row["task"]) for row in rows)
    if rows:
        session.execute(postgresql.insert(CtlSeen).values(rows).on_conflict_do_nothing())
        # Whoever follows the tasks must hear of it.
        concerned = sa.update(ReactiveTask).where(ReactiveTask.name.in_(names))
        session.execute(concerned.values(generation=ReactiveTask.generation + 1))
    return names


def take_first(session: Session, names: Collection[str]) -> frozenset[str]:
    """T12: the same, whatever else their triggers wait for and whether they may start: the first value of a parameter
    is what counts, not that with which the rest comes true. Tasks that another transaction is changing just now are
    left to whoever comes next."""
    return frozenset(session.connection().execute(taking_first(everything=False), {"names": sorted(names)}).scalars())


@cache
def taking_first(*, everything: bool = True) -> Any:
    task, leaf = ReactiveTask, ReactiveLeaf
    seen = sa.and_(CtlSeen.task == task.name, CtlSeen.entity == leaf.entity, CtlSeen.parameter == leaf.parameter)
    first = (
        sa.select(task.name, leaf.entity, leaf.parameter, Ctl.value)
        .join(leaf, leaf.task_id == task.id)
        .join(Ctl, sa.and_(Ctl.entity == leaf.entity, Ctl.parameter == leaf.parameter))
        .where(IS_BASELINE, leaf.latched, ~sa.exists().where(seen))
        .with_for_update(of=task, skip_locked=True)
    )
    if not everything:
        first = first.where(task.name == sa.any_(sa.bindparam("names", type_=Array(sa.Text))))
    rows = first.cte("first")
    insert = postgresql.insert(CtlSeen).from_select(["task", "entity", "parameter", "value"], sa.select(*rows.c))
    taken = insert.on_conflict_do_nothing().returning(CtlSeen.task).cte("taken")
    concerned = sa.update(task).where(task.name.in_(sa.select(taken.c.task)))
    return concerned.values(generation=task.generation + 1).returning(task.name)


def _release(session: Session, names: list[str]) -> None:
    """From quarantine: their input has moved."""
    if names:
        session.execute(
            sa.update(ReactiveTask)
            .where(ReactiveTask.name == sa.any_(sa.cast(names, Array(sa.Text))))
            .values(
                quarantined_at=None,
                quarantine_reason=None,
                quarantine_values=None,
                failures=0,
                # Whoever follows the tasks must hear of it.
                generation=ReactiveTask.generation + 1,
            )
        )
