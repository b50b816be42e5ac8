"""The log keeps what is younger than `TIDEMILL_LOG_RETENTION`."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from app.checks import limited
from app.db import transaction
from app.jobs.model import JobLog
from app.settings import settings

LIMIT = 10_000


@dataclass(frozen=True)
class Report:
    removed: int = 0
    more: bool = False


@limited
def run_once(limit: int = LIMIT) -> Report:
    """Removes at most `limit` of the oldest entries that are over age."""
    with transaction() as session:
        old = (
            sa.select(JobLog.id)
            .where(JobLog.ended_at < sa.func.now() - settings().log_retention)
            .order_by(JobLog.ended_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
            .cte("old")
        )
        gone = session.execute(sa.delete(JobLog).where(JobLog.id.in_(sa.select(old.c.id))).returning(JobLog.id)).all()
        return Report(len(gone), more=len(gone) == limit)
