"""How deep the queues of stages are, by index and in bounds: what there are millions of is counted up to `COUNTED`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.arrays import Array
from app.claims import Lane, distinct_prefix
from app.claims.model import is_running
from app.words import COUNTED
from stages.model import VISIT, StageVisit

#: A visit that is ready for so long, in a queue that is not paused, is late.
LATE = timedelta(minutes=1)

PARKED = StageVisit.state == sa.literal_column("'parked'")


@dataclass(frozen=True)
class Depth:
    """Of the main lane, unless it says otherwise."""

    ready: int = 0
    later: int = 0
    low_ready: int = 0
    low_later: int = 0
    running: int = 0
    parked: int = 0
    #: Of the ready ones.
    late: int = 0
    #: How long the first has been ready.
    oldest: timedelta | None = None
    low_oldest: timedelta | None = None
    #: When the first that is not ready yet will be.
    next_at: datetime | None = None


def queues(session: Session) -> list[str]:
    """Those with visits, by a probe each."""
    conditions = [StageVisit.waits_in(Lane.MAIN), StageVisit.waits_in(Lane.LOW), is_running(StageVisit), PARKED]
    found: set[str] = set()
    for condition in conditions:
        found |= set(session.execute(sa.select(distinct_prefix(StageVisit, condition).c.queue)).scalars())
    return sorted(found)


def of(session: Session, names: Sequence[str]) -> dict[str, Depth]:
    """Of each of these queues, in one query."""
    queue = sa.func.unnest(sa.cast(list(names), Array(sa.Text))).table_valued("name").render_derived(name="queue")
    own, now = VISIT.c.queue == queue.c.name, sa.func.now()

    def count(*conditions: Any, by: Any) -> Any:
        # In the order of the index, so that nothing else is read.
        rows = sa.select(sa.literal(1)).where(own, *conditions).order_by(by).limit(COUNTED)
        return sa.select(sa.func.count()).select_from(rows.correlate(queue).subquery()).scalar_subquery()

    def first(lane: Lane, condition: Any) -> Any:
        ready = StageVisit.ready(lane)
        query = sa.select(ready).where(own, StageVisit.waits_in(lane), condition(ready)).order_by(ready).limit(1)
        return query.correlate(queue).scalar_subquery()

    def waiting(lane: Lane, condition: Any) -> Any:
        ready = StageVisit.ready(lane)
        return count(StageVisit.waits_in(lane), condition(ready), by=ready)

    main, low = Lane.MAIN, Lane.LOW
    query = sa.select(
        queue.c.name,
        waiting(main, lambda ready: ready <= now).label("ready"),
        waiting(main, lambda ready: ready > now).label("later"),
        waiting(low, lambda ready: ready <= now).label("low_ready"),
        waiting(low, lambda ready: ready > now).label("low_later"),
        count(is_running(StageVisit), by=VISIT.c.recovery_time).label("running"),
        count(PARKED, by=VISIT.c.failed_at).label("parked"),
        waiting(main, lambda ready: ready <= now - LATE).label("late"),
        (now - first(main, lambda ready: ready <= now)).label("oldest"),
        (now - first(low, lambda ready: ready <= now)).label("low_oldest"),
        first(main, lambda ready: ready > now).label("next_at"),
    )
    return {row[0]: Depth(*row[1:]) for row in session.execute(query)}
