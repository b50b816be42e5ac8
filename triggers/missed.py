"""T23: windows in which a trigger held and that nobody used. `Delay`, `RefDelay` and their like open and close by
themselves; a person wants to know when that happened in vain, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.orm import Session

from app import counters
from app.arrays import Array
from triggers.instants import Instant, to_datetime
from triggers.model import LIVE, RUN, TASK, MissedWindow


@dataclass(frozen=True)
class Missed:
    task: str
    opened_at: datetime
    closed_at: datetime
    reason: str
    run_id: int | None


def record(session: Session, closed: Mapping[str, Instant], now: Instant) -> int:
    """Of the windows that closed now, those in which no run was made."""
    if not closed:
        return 0
    names = sorted(closed)
    window = (
        sa.func.unnest(
            sa.cast(names, Array(sa.Text)),
            sa.cast([to_datetime(closed[name]) for name in names], Array(TIMESTAMP(timezone=True))),
        )
        .table_valued(sa.column("task", sa.Text), sa.column("opened_at", TIMESTAMP(timezone=True)))
        .render_derived(name="closed")
    )
    # One that waits is checked when a worker takes it, and tells then that it came too late.
    in_time = sa.or_(
        RUN.c.created_at >= window.c.opened_at,
        RUN.c.started_at >= window.c.opened_at,
        RUN.c.state == sa.literal_column("'waiting'"),
    )
    used = sa.exists().where(RUN.c.task == window.c.task, in_time)
    working = sa.exists().where(RUN.c.task == window.c.task, LIVE)
    reason = sa.case(
        (TASK.c.paused, "the task was paused"),
        (TASK.c.quarantined_at.is_not(None), "the task was quarantined"),
        (working, "an earlier run was still at work"),
        (TASK.c.start_after > sa.cast(to_datetime(now), TIMESTAMP(timezone=True)), "its min_interval was not over"),
        else_="it closed before a run could be made",
    )
    source = (
        sa.select(window.c.task, window.c.opened_at, sa.cast(to_datetime(now), TIMESTAMP(timezone=True)), reason)
        .select_from(window.join(TASK, TASK.c.name == window.c.task))
        .where(~used, TASK.c.removed_at.is_(None))
    )
    columns = ["task", "opened_at", "closed_at", "reason"]
    insert = sa.insert(MissedWindow).from_select(columns, source).returning(MissedWindow.task)
    tasks = session.execute(insert).scalars().all()
    counters.at_commit(session, Counter(f"{counters.MISSED}{each}" for each in tasks))
    return len(tasks)


def lapsed(session: Session, task: str, run_id: int, opened_at: datetime, reason: str) -> None:
    """Of a run that was dropped when a worker took it: the window had opened when the run was made."""
    values = {"task": task, "opened_at": opened_at, "closed_at": sa.func.clock_timestamp(), "run_id": run_id}
    session.execute(sa.insert(MissedWindow).values(**values, reason=reason))
    counters.at_commit(session, {f"{counters.MISSED}{task}": 1})


def listed(session: Session, *, task: str | None = None, limit: int = 100) -> list[Missed]:
    """The last ones first."""
    m = MissedWindow
    query = sa.select(m.task, m.opened_at, m.closed_at, m.reason, m.run_id)
    if task is not None:
        query = query.where(m.task == task)
    return [Missed(*row) for row in session.execute(query.order_by(m.id.desc()).limit(limit))]


def count(session: Session, within: timedelta) -> int:
    recent = MissedWindow.closed_at > sa.func.now() - within
    return session.execute(sa.select(sa.func.count()).select_from(MissedWindow).where(recent)).scalar_one()
