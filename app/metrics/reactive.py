"""Reactive tasks, and how far the control table is followed."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import counters
from app.metrics import catalogue
from app.metrics.sample import COUNTED, NAMED, Sample, named, seconds
from app.stream import new_in
from triggers.model import CtlChange, ReactiveCursor, ReactiveEvent, ReactiveTask


def read(session: Session) -> Iterator[Sample]:
    task = ReactiveTask
    state = sa.case((task.quarantined_at.is_not(None), "quarantined"), (task.paused, "paused"), else_="active")
    query = sa.select(state.label("state"), sa.func.count()).where(task.removed_at.is_(None)).group_by(sa.text("state"))
    counts = {row[0]: row[1] for row in session.execute(query)}
    for word in ("active", "paused", "quarantined"):
        yield Sample(catalogue.TASKS, counts.get(word, 0), (word,))
    # Those that have missed none are there with 0: Prometheus sees no growth of a series that begins with 1.
    names = session.scalars(sa.select(task.name).where(task.removed_at.is_(None)).order_by(task.name).limit(NAMED))
    missed = dict.fromkeys(names, 0) | counters.named(counters.read(session), counters.MISSED)
    for name, count in named(sorted(missed.items())):
        yield Sample(catalogue.MISSED, count, (name,))
    if counts.get("quarantined"):
        bad = sa.select(task.name).where(task.removed_at.is_(None), task.quarantined_at.is_not(None))
        for name in session.scalars(bad.order_by(task.name).limit(NAMED)):
            yield Sample(catalogue.QUARANTINED, 1, (name,))
    yield from _capture(session)


def _capture(session: Session) -> Iterator[Sample]:
    """Nothing where no scheduler has ever run: polling follows nothing."""
    if session.execute(sa.select(ReactiveCursor.id)).first() is None:
        return
    before = sa.select(ReactiveCursor.snapshot).scalar_subquery()
    ranges = [*new_in(before, CtlChange, CtlChange.changed_at), *new_in(before, ReactiveEvent, ReactiveEvent.at)]
    rows = sa.union_all(*(each.limit(COUNTED) for each in ranges)).subquery("new")
    age = sa.func.coalesce(seconds(sa.func.clock_timestamp() - sa.func.min(rows.c[0])), 0)
    count, lag = session.execute(sa.select(sa.func.count(), age).select_from(rows)).one()
    yield Sample(catalogue.CAPTURE_WAITING, min(count, COUNTED))
    yield Sample(catalogue.CAPTURE_LAG, lag)
