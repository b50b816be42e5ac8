"""What is kept for `TIDEMILL_LOG_RETENTION`: walks that ended, and what waits for stages that were removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.checks import limited
from app.db import transaction
from app.settings import settings
from stages.definition import queue_of
from stages.model import VISIT, Resweep, Stage, VisitState

#: A walk has a row for each of its parts.
WALKS, VISITS = 100, 1000


@dataclass(frozen=True)
class Report:
    walks: int = 0
    visits: int = 0
    more: bool = False


@limited
def run_once(limit: int = VISITS) -> Report:
    """Removes at most `limit` visits, and a tenth as many walks."""
    with transaction() as session:
        before = sa.func.now() - settings().log_retention
        old = sa.select(Resweep.id).where(Resweep.ended_at < before).order_by(Resweep.id).limit(max(1, limit // 10))
        walks = len(session.execute(sa.delete(Resweep).where(Resweep.id.in_(old)).returning(Resweep.id)).all())
        gone = session.execute(sa.select(Stage.kind, Stage.name).where(Stage.removed_at < before)).all()
        visits = sum(_forget(session, queue_of(kind, name), limit) for kind, name in gone)
    return Report(walks, visits, more=visits >= limit or walks >= max(1, limit // 10))


def _forget(session: Session, queue: str, limit: int) -> int:
    """Also what is parked; what somebody works on just now is found the next time."""
    key = (VISIT.c.kind, VISIT.c.entity_id, VISIT.c.stage)
    removed = 0
    for state in (VisitState.WAITING, VisitState.PARKED):
        there: sa.ColumnElement[Any] = VISIT.c.state == sa.literal_column(f"'{state}'")
        some = sa.select(*key).where(VISIT.c.queue == queue, there).limit(limit).with_for_update(skip_locked=True)
        gone = sa.delete(VISIT).where(sa.tuple_(*key).in_(some)).returning(VISIT.c.entity_id)
        removed += len(session.execute(gone).all())
    return removed
