"""Storm control (R11): what recovery puts back is spread over time, so that recovery is not the next outage.

Promises:
- Of one queue, no more rows a second become ready by repairs than `TIDEMILL_REPAIR_RATE`, over any time, however many
  sweeps put them back; and `BURST_SECONDS` worth of them on top of that.
- They come at random moments of their span, not in waves.
- One alone, or a few, are ready at once.

The row of a queue says until when its repairs are planned. It is locked only when something is put back, last of all
that the transaction locks, and in the order of the names.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Mapped, mapped_column

from app.arrays import Array
from app.claims.model import Executor
from app.db import Model
from app.settings import settings

BURST_SECONDS = 0.1


class RepairPace(Model):
    __tablename__ = "repair_pace"
    __table_args__ = ({"postgresql_with": {"fillfactor": 20}},)

    queue: Mapped[str] = mapped_column(primary_key=True)
    until: Mapped[datetime]


def delays(executor: Executor, queues: Sequence[str], rate: int | None = None) -> list[float]:
    """For each row that is put back, by its queue: in how many seconds it may start; 0: at once."""
    if not queues:
        return []
    per_second = rate or settings().repair_rate
    counts = sorted(Counter(queues).items())
    spans = {queue: count / per_second for queue, count in counts}
    begins = _planned(executor, [queue for queue, _ in counts], [spans[queue] for queue, _ in counts])
    at_once = max(BURST_SECONDS, 1 / per_second)
    return [max(0.0, random.uniform(0, spans[queue]) + begins[queue] - at_once) for queue in queues]  # noqa: S311


def _planned(executor: Executor, queues: list[str], spans: list[float]) -> dict[str, float]:
    """Moves the end of what is planned; returns in how many seconds ours begins."""
    rows = (
        sa.func.unnest(sa.cast(queues, Array(sa.Text)), sa.cast(spans, Array(sa.Double)))
        .table_valued(sa.column("queue", sa.Text), sa.column("span", sa.Double))
        .render_derived(name="planned")
    )
    planned = {row.queue: row.ahead for row in executor.execute(planning(rows))}
    return {queue: max(0.0, planned[queue] - span) for queue, span in zip(queues, spans, strict=True)}


def planning(rows: Any) -> Any:
    """For a statement that puts rows back itself: `rows` says how many seconds (`span`) of which `queue` they take;
    returns in how many seconds each of these ends (`ahead`)."""
    now = sa.func.statement_timestamp()
    own = sa.select(rows.c.queue, now + _seconds(rows.c.span)).order_by(rows.c.queue)
    insert = postgresql.insert(RepairPace).from_select(["queue", "until"], own)
    later = sa.func.greatest(RepairPace.until, now) + (insert.excluded.until - now)
    moved = insert.on_conflict_do_update(index_elements=["queue"], set_={"until": later})
    ahead = sa.extract("epoch", RepairPace.until - now).cast(sa.Double)
    return moved.returning(RepairPace.queue, ahead.label("ahead"))


def turn(span: Any, ahead: Any, rate: Any) -> sa.ColumnElement[float]:
    """The same as `delays` of one row, by its queue's `span` and `ahead`, in such a statement."""
    at_once = sa.func.greatest(BURST_SECONDS, 1 / rate)
    return sa.func.greatest(0.0, sa.func.random() * span + sa.func.greatest(0.0, ahead - span) - at_once)


def _seconds(span: sa.ColumnElement[float]) -> sa.ColumnElement[object]:
    return sa.func.make_interval(0, 0, 0, 0, 0, 0, span)
