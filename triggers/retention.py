"""Runs that ended, and evaluations, are kept for `TIDEMILL_LOG_RETENTION`; of each task the last of both stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import aliased

from app.db import transaction
from app.settings import settings
from triggers.model import RUN, Evaluation, TaskRun

LIMIT = 10_000


@dataclass(frozen=True)
class Report:
    runs: int = 0
    evaluations: int = 0
    more: bool = False


def run_once(limit: int = LIMIT) -> Report:
    """Removes at most `limit` of the oldest of each."""
    with transaction() as session:
        runs = _remove(session, TaskRun, RUN.c.ended_at, limit)
        evaluations = _remove(session, Evaluation, Evaluation.at, limit)
        return Report(runs, evaluations, more=limit in (runs, evaluations))


def _remove(session: Any, model: Any, moment: Any, limit: int) -> int:
    later = aliased(model)
    old = (
        sa.select(model.id)
        .where(
            moment < sa.func.now() - settings().log_retention,
            sa.exists().where(later.task == model.task, later.id > model.id),
        )
        .order_by(moment)
        .limit(limit)
        .with_for_update(of=model, skip_locked=True)
        .cte("old")
    )
    return len(session.execute(sa.delete(model).where(model.id.in_(sa.select(old.c.id))).returning(model.id)).all())
