"""Are events published."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy.orm import Session

from app.health.finding import Finding, fail, ok, warn
from app.outbox import listing
from app.outbox.listing import COUNTED, Lag
from app.words import span

#: What is saved is published within moments.
LATE = timedelta(minutes=1)


def relayed(session: Session) -> Finding:
    """S14: what was saved is on its way, or somebody must hear of it."""
    lag = listing.lag(session)
    late = lag.oldest is not None and lag.oldest > LATE
    if lag.error is not None:
        return (fail if late else warn)(
            "events",
            f"{told(lag)}: {lag.error}{failing(lag)}",
            "check the broker of TIDEMILL_EVENTS_URL (or else TIDEMILL_BROKER_URL); nothing is lost meanwhile",
        )
    if late:
        return warn(
            "events",
            told(lag),
            "start a scheduler (celery -A app scheduler), or beat with a worker of the queue 'control'; if one runs, "
            "it is not fast enough, or publishes much again: tidemill events status",
        )
    return ok("events", f"{told(lag)}, {lag.published} published so far")


def told(lag: Lag) -> str:
    if not lag.waiting:
        return "nothing waits"
    count = f"{lag.waiting}+" if lag.waiting >= COUNTED else str(lag.waiting)
    return f"{count} not published" + ("" if lag.oldest is None else f", the first for {span(lag.oldest)}")


def failing(lag: Lag) -> str:
    return "" if lag.failed_for is None else f" (for {span(lag.failed_for)})"
