"""How fresh data sets are: the values of their parameters, and whether they move as they use to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP
from sqlalchemy.orm import Session

from app.arrays import Array
from triggers.model import Ctl, CtlChange

#: What is usual is told by so many of the last changes; silent is what has not moved for so many times as long.
CHANGES, SILENT = 8, 3
#: Of a data set, so many parameters are looked at.
PARAMETERS_MOST = 20


@dataclass(frozen=True)
class Fresh:
    """`usual`: the time between two changes, as it was lately; None: too few are kept to say."""

    entity: str
    parameter: str
    value: datetime
    changed_at: datetime
    usual: timedelta | None
    now: datetime

    @property
    def silent(self) -> bool:
        return self.usual is not None and self.now - self.changed_at > SILENT * self.usual

    @property
    def behind(self) -> timedelta:
        """How far the value lies behind the time; below zero if it lies ahead."""
        return self.now - self.value


def of(session: Session, entities: Iterable[str]) -> dict[str, list[Fresh]]:
    """By the name of the data set; each one's parameters in the order of their names."""
    names = sorted(set(entities))
    found: dict[str, list[Fresh]] = {}
    if not names:
        return found
    for row in session.execute(_QUERY, {"names": names}):
        usual = _usual(row.moments or [])
        fresh = Fresh(row.entity, row.parameter, row.value, row.changed_at, usual, row.now)
        found.setdefault(row.entity, []).append(fresh)
    return found


def _usual(moments: Sequence[datetime]) -> timedelta | None:
    """The median of what lies between them."""
    ordered = sorted(moments)
    gaps = sorted(after - before for before, after in pairwise(ordered))
    if len(gaps) < 2:
        return None
    return gaps[len(gaps) // 2] or None


def _query() -> Any:
    given = (
        sa.func.unnest(sa.bindparam("names", type_=Array(sa.Text)))
        .table_valued(sa.column("name", sa.Text))
        .render_derived(name="given")
    )
    here = (
        sa.select(Ctl.entity, Ctl.parameter, Ctl.value, Ctl.changed_at)
        .where(Ctl.entity == given.c.name)
        .order_by(Ctl.parameter)
        .limit(PARAMETERS_MOST)
        .lateral("here")
    )
    c = CtlChange
    last = (
        sa.select(c.changed_at)
        .where(c.entity == here.c.entity, c.parameter == here.c.parameter)
        .order_by(c.id.desc())
        .limit(CHANGES)
        .correlate(here)
    )
    moments = sa.func.array(last.scalar_subquery(), type_=ARRAY(TIMESTAMP(timezone=True)))
    return (
        sa.select(*here.c, moments.label("moments"), sa.func.clock_timestamp().label("now"))
        .select_from(given.join(here, sa.true()))
        .order_by(here.c.entity, here.c.parameter)
    )


_QUERY = _query()
