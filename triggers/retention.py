"""What is kept for `TIDEMILL_LOG_RETENTION`: runs that ended and evaluations (of each task the last of both stays),
windows that were missed, and the streams that the service follows, never beyond its cursor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from app.checks import limited
from app.db import transaction
from app.settings import settings
from app.stream import TransactionId
from triggers.model import (
    RUN,
    CtlChange,
    Evaluation,
    MissedWindow,
    ReactiveCursor,
    ReactiveEvent,
    TaskRun,
)

LIMIT = 10_000


@dataclass(frozen=True)
class Report:
    runs: int = 0
    evaluations: int = 0
    windows: int = 0
    changes: int = 0
    events: int = 0
    more: bool = False


@limited
def run_once(limit: int = LIMIT) -> Report:
    """Removes at most `limit` of the oldest of each."""
    with transaction() as session:
        _give_up_for(session)
        runs = _remove(session, TaskRun, RUN.c.ended_at, limit)
        evaluations = _remove(session, Evaluation, Evaluation.at, limit)
        windows = _remove_all(session, MissedWindow, MissedWindow.closed_at, limit)
        changes = _remove_all(session, CtlChange, CtlChange.changed_at, limit, _followed(CtlChange))
        events = _remove_all(session, ReactiveEvent, ReactiveEvent.at, limit, _followed(ReactiveEvent))
        removed = (runs, evaluations, windows, changes, events)
        return Report(*removed, more=limit in removed)


def _give_up_for(session: Session) -> None:
    """A service that has followed nothing for so long is gone; should it come back, it begins anew."""
    gone = ReactiveCursor.moved_at < sa.func.now() - settings().log_retention
    anew = {"term": ReactiveCursor.term + 1, "snapshot": sa.func.pg_current_snapshot(), "moved_at": sa.func.now()}
    session.execute(sa.update(ReactiveCursor).where(gone).values(**anew))


def _followed(stream: Any) -> sa.ColumnElement[bool]:
    """The service has seen it, or there is none."""
    before = sa.select(ReactiveCursor.snapshot).scalar_subquery()
    return sa.func.coalesce(stream.xid < sa.func.pg_snapshot_xmin(before, type_=TransactionId), sa.true())


def _remove_all(session: Session, model: Any, moment: Any, limit: int, *conditions: Any) -> int:
    over_age = moment < sa.func.now() - settings().log_retention
    old = sa.select(model.id).where(over_age, *conditions).limit(limit).cte("old")
    return len(session.execute(sa.delete(model).where(model.id.in_(sa.select(old.c.id))).returning(model.id)).all())


def _remove(session: Session, model: Any, moment: Any, limit: int) -> int:
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
