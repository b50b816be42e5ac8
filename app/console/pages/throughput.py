"""What has ended in the last hour, by minute: executions of jobs, runs of reactive tasks, processes.

Visits leave no record of their own when they end: what stages do is told by their metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.arrays import Array
from app.console.drawing import spark
from app.console.drawing.spark import Spark
from app.console.web.memory import Remembered
from app.db import transaction
from app.jobs.model import JOB_LOG
from processes.model import PREFERENCES, PROCESS
from triggers.model import RUN

MINUTES, STEP = 60, 5
#: Of a minute with more, no more are counted.
COUNTED = 10_000
SECONDS = 10.0
_MINUTE = timedelta(minutes=1)
KINDS = ("Jobs", "Reactive runs", "Processes")


@dataclass(frozen=True)
class Throughput:
    """By kind; `steps`: from when on, and how many of each kind in the minutes that follow."""

    until: datetime
    sparks: Mapping[str, Spark]
    steps: list[tuple[datetime, list[int]]]


def read(session: Session) -> Throughput:
    """Of whole minutes, the current one left out."""
    deciders = list(session.scalars(sa.select(PREFERENCES.c.name).where(PREFERENCES.c.decider)))
    rows = session.execute(_query(deciders)).all()
    by_kind = list(zip(*(row[1:] for row in rows), strict=True))
    sparks = {kind: spark.draw(counts, COUNTED) for kind, counts in zip(KINDS, by_kind, strict=True)}
    parts = [rows[at : at + STEP] for at in range(0, MINUTES, STEP)]
    steps = [(part[0][0], [sum(row[kind] for row in part) for kind in range(1, len(KINDS) + 1)]) for part in parts]
    return Throughput(rows[-1][0] + _MINUTE, sparks, steps)


def _query(deciders: Iterable[str]) -> sa.Select[Any]:
    now = sa.func.date_trunc("minute", sa.func.now())
    series = sa.func.generate_series(now - MINUTES * _MINUTE, now - _MINUTE, _MINUTE)
    minute = series.table_valued("begin").render_derived(name="minute")

    def count(ended: Any, *conditions: Any) -> Any:
        begin = sa.type_coerce(minute.c.begin, sa.DateTime(timezone=True))
        rows = sa.select(sa.literal(1)).where(ended >= begin, ended < begin + _MINUTE, *conditions)
        return (
            sa.select(sa.func.count()).select_from(rows.limit(COUNTED).correlate(minute).subquery()).scalar_subquery()
        )

    # The index of processes that have ended begins with the type.
    named = PROCESS.c.name == sa.any_(sa.cast(list(deciders), Array(sa.Text)))
    counts = (count(JOB_LOG.c.ended_at), count(RUN.c.ended_at), count(PROCESS.c.ended_at, named))
    return sa.select(minute.c.begin, *counts).order_by(minute.c.begin)


def _seen() -> Throughput:
    with transaction() as session:
        return read(session)


SEEN = Remembered(_seen, SECONDS).kept()
