"""Queues: how deep, how old, paused or not. A probe for each queue, and index ranges in bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.claims import Claimable, Lane, distinct_prefix
from app.claims.model import built_once, is_running, table_of
from app.limits import Queue, resting
from app.metrics import catalogue
from app.metrics.sample import COUNTED, NAMED, Sample, named, seconds
from app.registry import registry


def read(session: Session) -> Iterator[Sample]:
    for table in registry.waiting:
        for lane in table.lanes:
            yield from _waiting_in(session, table.model, lane)
        for state, condition in _marked(table.model):
            counts = session.execute(_counts(table.model, state, condition))
            for queue, count in counts:
                yield Sample(catalogue.DEPTH, count, (table.model.NOUN, queue, Lane.MAIN, state))
    yield from _limits(session)


def _waiting_in(session: Session, model: type[Claimable], lane: Lane) -> Iterator[Sample]:
    for row in session.execute(_waiting(model, lane)):
        labels = (model.NOUN, row.queue, lane.value)
        yield Sample(catalogue.DEPTH, row.ready, (*labels, "ready"))
        yield Sample(catalogue.DEPTH, row.later, (*labels, "later"))
        yield Sample(catalogue.OLDEST, row.oldest or 0.0, labels)


def _limits(session: Session) -> Iterator[Sample]:
    rested = sa.and_(Queue.rests_why.is_not(None), resting(sa.func.now()))
    rows = session.execute(sa.select(Queue.name, Queue.paused, rested).order_by(Queue.name))
    for name, paused, rests in named(rows):
        yield Sample(catalogue.PAUSED, float(paused), (name,))
        yield Sample(catalogue.RESTING, float(rests), (name,))


@built_once
def _waiting(model: type[Claimable], lane: Lane) -> Any:
    """By queue. An index holds the ready and the later ones of a rank in the order of their times."""
    table, ready, now = table_of(model), model.ready(lane), sa.func.now()
    groups = distinct_prefix(model, model.waits_in(lane), *((model.rank,) if model.RANKED else ()))

    def of_group(*columns: Any) -> Any:
        found = sa.select(*columns).where(table.c.queue == groups.c.queue, model.waits_in(lane)).order_by(ready)
        return found.where(table.c.rank == groups.c.rank) if model.RANKED else found

    def count(condition: Any) -> Any:
        rows = of_group(sa.literal(1)).where(condition).limit(COUNTED).correlate(groups).subquery()
        return sa.select(sa.func.count()).select_from(rows).scalar_subquery()

    first = of_group(ready).where(ready <= now).limit(1).correlate(groups).scalar_subquery()
    each = sa.select(
        groups.c.queue,
        count(ready <= now).label("ready"),
        count(ready > now).label("later"),
        seconds(now - first).label("oldest"),
    ).subquery("each")
    return (
        sa.select(
            each.c.queue,
            sa.func.sum(each.c.ready).label("ready"),
            sa.func.sum(each.c.later).label("later"),
            sa.func.max(each.c.oldest).label("oldest"),
        )
        .group_by(each.c.queue)
        .order_by(each.c.queue)
        .limit(NAMED)
    )


def _marked(model: type[Claimable]) -> Iterator[tuple[str, Any]]:
    yield "running", is_running(model)
    # Where nothing is ever parked there is no index of it either.
    if any(index.name == f"{table_of(model).name}_parked" for index in table_of(model).indexes):
        yield "parked", model.state == sa.literal_column(f"'{model.PARKED}'")


def _counts(model: type[Claimable], state: str, condition: Any) -> Any:
    table = table_of(model)
    index = next(index for index in table.indexes if index.name == f"{table.name}_{state}")
    groups = distinct_prefix(model, condition)
    # In the order of the index, so that nothing else is read.
    order = [each for each in index.expressions if getattr(each, "name", None) != "queue"]
    rows = sa.select(sa.literal(1)).where(table.c.queue == groups.c.queue, condition).order_by(*order).limit(COUNTED)
    count = sa.select(sa.func.count()).select_from(rows.correlate(groups).subquery()).scalar_subquery()
    return sa.select(groups.c.queue, count).order_by(groups.c.queue).limit(NAMED)
