"""Queues: how deep, how old, paused or not. A probe for each queue, and index ranges in bounds."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.claims import Claimable, Lane, depths
from app.limits import Queue, resting
from app.metrics import catalogue
from app.metrics.sample import COUNTED, NAMED, Sample, named
from app.registry import registry


def read(session: Session) -> Iterator[Sample]:
    for table in registry.waiting:
        for lane in table.lanes:
            yield from _waiting_in(session, table.model, lane)
        for state, counts in depths.marked(table.model, COUNTED):
            for queue, count in session.execute(counts.limit(NAMED)):
                yield Sample(catalogue.DEPTH, count, (table.model.NOUN, queue, Lane.MAIN, state))
    yield from _limits(session)


def _waiting_in(session: Session, model: type[Claimable], lane: Lane) -> Iterator[Sample]:
    for row in session.execute(depths.waiting(model, lane, COUNTED).limit(NAMED)):
        labels = (model.NOUN, row.queue, lane.value)
        yield Sample(catalogue.DEPTH, row.ready, (*labels, "ready"))
        yield Sample(catalogue.DEPTH, row.later, (*labels, "later"))
        yield Sample(catalogue.OLDEST, row.oldest.total_seconds() if row.oldest else 0.0, labels)


def _limits(session: Session) -> Iterator[Sample]:
    rested = sa.and_(Queue.rests_why.is_not(None), resting(sa.func.now()))
    rows = session.execute(sa.select(Queue.name, Queue.paused, rested).order_by(Queue.name))
    for name, paused, rests in named(rows):
        yield Sample(catalogue.PAUSED, float(paused), (name,))
        yield Sample(catalogue.RESTING, float(rests), (name,))
