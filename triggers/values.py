"""The values that triggers are checked against, read in one query at one moment of the database's clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.arrays import Array
from app.prepared import Prepared
from triggers.ctl import Parameter
from triggers.model import Ctl, CtlSeen
from triggers.trigger import Trigger
from triggers.verdict import Verdict


@dataclass
class Values:
    now: datetime
    current: dict[Parameter, datetime] = field(default_factory=dict)
    #: By task.
    seen: dict[str, dict[Parameter, datetime]] = field(default_factory=dict)

    def check(self, task: str, trigger: Trigger) -> Verdict:
        return trigger.check(self.now, self.current, self.seen.get(task, {}))

    def snapshot(self, task: str, trigger: Trigger) -> list[list[str | None]]:
        """As it is stored: `[[entity, parameter, last seen, current], …]`."""
        seen = self.seen.get(task, {})
        return [[*name, _text(seen.get(name)), _text(self.current.get(name))] for name in trigger.parameters]


def _text(value: datetime | None) -> str | None:
    """In UTC: the zone that a session reads in is its own, and the same moment must be the same text."""
    return None if value is None else value.astimezone(UTC).isoformat()


def windows(snapshot: Iterable[Iterable[str | None]]) -> dict[Parameter, tuple[datetime | None, datetime | None]]:
    """What was stored, as last seen and current of each parameter."""
    found: dict[Parameter, tuple[datetime | None, datetime | None]] = {}
    for entity, parameter, seen, current in snapshot:
        found[(str(entity), str(parameter))] = (_moment(seen), _moment(current))
    return found


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def read(session: Session, wanted: Iterable[tuple[str, Trigger]]) -> Values:
    rows = [(task, *name) for task, trigger in wanted for name in trigger.parameters]
    columns: Any = zip(*rows, strict=True) if rows else ((), (), ())
    bound = dict(zip(("tasks", "entities", "parameters"), map(list, columns), strict=True))
    values = Values(now=session.execute(sa.select(sa.func.clock_timestamp())).scalar_one()) if not rows else None
    for row in _reading().execute(session.connection(), bound) if rows else ():
        if values is None:
            values = Values(now=row.now)
        name = (row.entity, row.parameter)
        if row.current is not None:
            values.current[name] = row.current
        if row.seen is not None:
            values.seen.setdefault(row.task, {})[name] = row.seen
    assert values is not None  # noqa: S101 - one row for each that was asked for
    return values


@cache
def _reading() -> Prepared:
    asked = (
        sa.func.unnest(*(sa.bindparam(name, type_=Array(sa.Text)) for name in ("tasks", "entities", "parameters")))
        .table_valued("task", "entity", "parameter")
        .render_derived(name="asked")
    )
    ctl = sa.and_(Ctl.entity == asked.c.entity, Ctl.parameter == asked.c.parameter)
    seen = sa.and_(
        CtlSeen.task == asked.c.task, CtlSeen.entity == asked.c.entity, CtlSeen.parameter == asked.c.parameter
    )
    # One moment for all rows, after the snapshot of the values was taken.
    now = sa.select(sa.func.clock_timestamp().label("now")).cte("clock").prefix_with("MATERIALIZED")
    values = sa.select(
        now.c.now,
        asked.c.task,
        asked.c.entity,
        asked.c.parameter,
        Ctl.value.label("current"),
        CtlSeen.value.label("seen"),
    ).select_from(asked.join(now, sa.true()).outerjoin(Ctl, ctl).outerjoin(CtlSeen, seen))
    return Prepared("values_read", values)
