"""What only stages have, and the events that their saves are."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.metrics import catalogue
from app.metrics.sample import Sample, named
from app.outbox import listing
from stages.model import Stage


def read(session: Session) -> Iterator[Sample]:
    query = sa.select(Stage.kind, Stage.name, Stage.ask_failures).where(Stage.removed_at.is_(None))
    for kind, name, failures in named(session.execute(query.order_by(Stage.kind, Stage.name))):
        yield Sample(catalogue.ASK_FAILURES, failures, (kind, name))
    lag = listing.lag(session)
    yield Sample(catalogue.EVENTS_WAITING, lag.waiting)
    yield Sample(catalogue.RELAY_LAG, 0.0 if lag.oldest is None else max(0.0, lag.oldest.total_seconds()))
    yield Sample(catalogue.PUBLISHED, lag.published)
    failing = lag.error is not None and lag.failed_for is not None
    yield Sample(catalogue.RELAY_FAILING, lag.failed_for.total_seconds() if failing and lag.failed_for else 0.0)
