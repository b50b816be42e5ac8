"""What the code declares, brought to Postgres when a service starts; many may start at once.

A task that its module does not declare any more is removed: it starts no more, and what it has seen is kept. A task of
a module that was not imported here belongs to somebody else; where that is nobody any more, an operator removes it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app import locks
from app.arrays import Array
from app.db import transaction
from app.locks import Lock
from triggers import pools, values
from triggers.checks import Finding, FindingKind
from triggers.definition import Definition
from triggers.leaf_rows import leaf_rows
from triggers.model import RUN, TASK, ReactiveLeaf, ReactiveTask, RunKind, RunState
from triggers.registration import declared
from triggers.shape import shape
from triggers.starting import UNREADABLE, baseline
from triggers.static import findings

FINDINGS_SHOWN = 10
#: What is written of a definition; of a change in the last two, a quarantined task is released.
COLUMNS = ("module", "pool", "priority", "produces", "min_interval", "first_run", "on_lapse", "max_failures", "backoff")
RELEASING = ("trigger", "code")


@dataclass(frozen=True)
class Synced:
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    #: Of those that are new or changed.
    start_at_once: tuple[str, ...] = ()
    #: What the static checks say of them; `unchecked`: why they could not be made.
    findings: tuple[Finding, ...] = ()
    unchecked: str | None = None
    tasks: int = 0

    def told(self) -> list[str]:
        if not self.tasks and not self.removed:
            return []
        words = f"{len(self.new)} new, {len(self.changed)} changed, {len(self.removed)} removed"
        lines = [f"reactive tasks: {self.tasks}, of these {words}"]
        if self.new or self.changed:
            never = [each.tasks[0] for each in self.findings if each.kind is FindingKind.NEVER_FIRES]
            lines.append(
                f"  {len(self.start_at_once)} will start at once{_names(self.start_at_once)}; "
                f"{len(never)} can never fire{_names(never)}"
            )
            lines += self._found()
            if self.unchecked is not None:
                lines.append(f"  not checked: {self.unchecked}")
        return lines

    def _found(self) -> list[str]:
        """What has no value yet is as it should be before the first load: one line for all of them."""
        empty = sum(each.kind is FindingKind.NO_VALUE for each in self.findings)
        others = [each for each in self.findings if each.kind is not FindingKind.NO_VALUE]
        lines = [f"  {each.kind}: {each.sentence}" for each in others[:FINDINGS_SHOWN]]
        if len(others) > FINDINGS_SHOWN:
            lines.append(f"  and {len(others) - FINDINGS_SHOWN} more: tidemill doctor")
        if empty:
            have = "1 parameter has" if empty == 1 else f"{empty} parameters have"
            lines.append(f"  {have} no value and no producer yet, named by: tidemill doctor")
        return lines


def _names(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f": {', '.join(names[:most])}{more}" if names else ""


def synchronize() -> Synced:
    with transaction() as session:
        locks.take(session, Lock.REACTIVE_TASKS)
        return write(session, declared)


def write(session: Session, wanted: Mapping[str, Definition]) -> Synced:
    modules = sorted({each.module for each in wanted.values()} | set(sys.modules))
    ours = sa.or_(ReactiveTask.name.in_(wanted), ReactiveTask.module == sa.any_(sa.cast(modules, Array(sa.Text))))
    known = {row.name: row for row in session.execute(sa.select(*TASK.c).where(ours))}
    new = sorted((each for each in wanted.values() if each.name not in known), key=attrgetter("name"))
    changes = [(known[name], wanted[name]) for name in sorted(wanted) if name in known]
    changed = [(row, each) for row, each in changes if _differs(row, each)]
    removed = sorted(row.name for row in known.values() if row.name not in wanted and row.removed_at is None)
    _insert(session, new)
    for row, each in changed:
        _update(session, row, each)
    remove(session, removed)
    # After the tasks, as everybody who locks both.
    pools.write_declared(session, {each.pool for each in wanted.values()})
    told = [*new, *(each for _, each in changed)]
    starting = _starting(session, told)
    found, unchecked = _findings(session, {each.name for each in told})
    return Synced(
        tuple(each.name for each in new),
        tuple(row.name for row, _ in changed),
        tuple(removed),
        starting,
        found,
        unchecked,
        len(wanted),
    )


def _findings(session: Session, names: set[str]) -> tuple[tuple[Finding, ...], str | None]:
    """What another release has stored must not keep this one from starting."""
    try:
        return findings(session, names), None
    except UNREADABLE as error:
        return (), str(error)


def _words(each: Definition) -> dict[str, Any]:
    produces = None if each.produces is None else [list(name) for name in each.produces]
    words = {name: getattr(each, name) for name in COLUMNS} | {"produces": produces or []}
    return words | {"trigger": each.trigger.to_json(), "code": each.code}


def _differs(row: Row[Any], each: Definition) -> bool:
    return row.removed_at is not None or any(getattr(row, name) != value for name, value in _words(each).items())


def _insert(session: Session, definitions: Sequence[Definition]) -> None:
    if not definitions:
        return
    rows = [_words(each) | {"name": each.name, "shape": shape(each.trigger)} for each in definitions]
    made = session.execute(sa.insert(ReactiveTask).returning(ReactiveTask.name, ReactiveTask.id), rows)
    ids = {row.name: row.id for row in made}
    session.execute(
        sa.insert(ReactiveLeaf), [leaf for each in definitions for leaf in leaf_rows(ids[each.name], each.trigger)]
    )


def _update(session: Session, row: Row[Any], each: Definition) -> None:
    words = _words(each)
    values = words | {
        "shape": shape(each.trigger),
        "removed_at": None,
        "changed_at": sa.func.now(),
        "generation": ReactiveTask.generation + 1,
    }
    if any(getattr(row, name) != words[name] for name in RELEASING):
        values |= {"quarantined_at": None, "quarantine_reason": None, "quarantine_values": None, "failures": 0}
    if row.min_interval != each.min_interval:
        values["start_after"] = _start_after(each)
    session.execute(sa.update(ReactiveTask).where(ReactiveTask.name == each.name).values(**values))
    if row.trigger != words["trigger"]:
        session.execute(sa.delete(ReactiveLeaf).where(ReactiveLeaf.task_id == row.id))
        session.execute(sa.insert(ReactiveLeaf), leaf_rows(row.id, each.trigger))
    if (row.pool, row.priority) != (each.pool, each.priority):
        place = {"queue": each.queue, "priority": each.priority, "rank": -each.priority}
        waits = sa.and_(RUN.c.task == each.name, RUN.c.state == RunState.WAITING)
        session.execute(sa.update(RUN).where(waits).values(**place))


def _start_after(each: Definition) -> Any:
    """By the interval that holds from now on."""
    last = sa.select(sa.func.max(RUN.c.started_at)).where(RUN.c.task == each.name, RUN.c.kind == RunKind.REGULAR)
    return last.scalar_subquery() + each.min_interval if each.min_interval else None


def remove(session: Session, names: Sequence[str]) -> None:
    """They start no more, and what waits of them is cancelled. What they have seen is kept."""
    if not names:
        return
    gone = sa.update(ReactiveTask).where(ReactiveTask.name.in_(names))
    session.execute(gone.values(removed_at=sa.func.now(), generation=ReactiveTask.generation + 1))
    waits = sa.and_(RUN.c.task.in_(names), RUN.c.state == RunState.WAITING)
    end = {"state": RunState.CANCELLED, "ended_at": sa.func.now(), "error": "the task is not declared any more"}
    session.execute(sa.update(RUN).where(waits).values(**end))


def _starting(session: Session, definitions: Sequence[Definition]) -> tuple[str, ...]:
    """Those that the next evaluation would start. What is there now is the baseline of those that want one: what moves
    between here and their first evaluation is new."""
    found = values.read(session, [(each.name, each.trigger) for each in definitions])
    baseline(session, found, [(each.name, each.trigger) for each in definitions if each.first_run == "baseline"])
    return tuple(each.name for each in definitions if found.check(each.name, each.trigger).fired)
