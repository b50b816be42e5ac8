"""What a person does with a stage by hand, by names alone: the code of the stage need not be there. Everything is
audited, takes effect with the next claim, and is safe while visits wait or run. What is parked: `stages.redriving`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from app import audit, limits
from app.arrays import Array
from app.claims import Lane
from app.db import transaction
from app.doorbell import GENERIC
from app.errors import BadRequest
from app.jobs.enqueue import ring_after_commit
from app.limits import UNCHANGED
from stages import queue
from stages.definition import SYSTEM
from stages.lookup import Known
from stages.model import Stage
from stages.moments import moment

_EVERYTHING = "{*}"


def pause(stage: Known, *, reason: str | None = None) -> bool:
    """Nothing more is visited; what is being visited ends as usual. Whether that is new."""
    return _paused(stage, "pause", paused=True, reason=reason)


def resume(stage: Known, *, reason: str | None = None) -> bool:
    """Whether it was paused, or rested because its service does not answer."""
    return _paused(stage, "resume", paused=False, reason=reason)


def _paused(stage: Known, action: str, *, paused: bool, reason: str | None) -> bool:
    with transaction() as session:
        before = limits.lock(session, stage.queue)
        limits.configure(session, stage.queue, paused=paused)
        audit.record(session, f"stage.{action}", str(stage), reason=reason)
        if not paused:
            ring_after_commit(session, stage.queue, GENERIC)
        return before.paused is not paused or (before.rests and not paused)


def limit(
    stage: Known,
    *,
    rate: str | None = UNCHANGED,
    max_parallel: int | None = UNCHANGED,
    burst: float | None = UNCHANGED,
    reason: str | None = None,
) -> None:
    """For the whole cluster (S15); what is left out stays. It lasts until the code declares other limits."""
    given = {"rate": rate, "max_parallel": max_parallel, "burst": burst}
    changes: dict[str, Any] = {word: value for word, value in given.items() if value is not UNCHANGED}
    with transaction() as session:
        limits.configure(session, stage.queue, **changes)
        audit.record(session, "stage.limit", str(stage), reason=reason, **changes)


def reset(stage: Known) -> int:
    """The count of failed `should_process` begins anew; what it was."""
    with transaction() as session:
        mine = sa.and_(Stage.kind == stage.kind, Stage.name == stage.name)
        before = session.execute(sa.select(Stage.ask_failures).where(mine).with_for_update()).scalar_one_or_none()
        session.execute(sa.update(Stage).where(mine).values(ask_failures=0, ask_failure=None))
        audit.record(session, "stage.reset", str(stage), failures=before)
        return before or 0


def offer(
    stage: Known,
    entity_id: str,
    visit_time: datetime | timedelta | None = None,
    *,
    low: bool = False,
    reason: str | None = None,
) -> bool:
    """Puts an entity into the queue of a stage, by the merge rule. Whether that changed anything."""
    if stage.removed:
        raise BadRequest(f"stage {stage} is not declared any more: no worker visits for it")
    try:
        at = None if visit_time is None else moment("visit_time", visit_time, datetime.now(UTC))
    except ValueError as error:
        raise BadRequest(str(error)) from None
    texts = Array(sa.Text)
    moved = sa.func.tidemill.offer_visits(
        stage.kind,
        sa.cast([entity_id], texts),
        sa.cast([stage.name], texts),
        sa.func.array_fill(
            sa.func.coalesce(sa.cast(at, queue.MOMENT), sa.func.clock_timestamp()), sa.cast([1], Array(sa.Integer))
        ),
        low,
        # What the system stage asks about: all of it.
        sa.cast([_EVERYTHING if stage.name == SYSTEM else None], texts),
    )
    with transaction() as session:
        new = bool(session.execute(sa.select(moved)).scalar_one())
        time = None if at is None else at.isoformat()
        told = {"entity": entity_id, "visit_time": time, "low": low, "new": new}
        audit.record(session, "stage.offer", str(stage), reason=reason, **told)
        if at is None or at <= datetime.now(UTC):
            ring_after_commit(session, f"{stage.queue}.{Lane.LOW}" if low else stage.queue, stage.task or GENERIC)
        return new


def delete(stage: Known, entity_id: str) -> bool:
    """Takes an entity out of the queue of a stage; a visit that works just now saves nothing."""
    with transaction() as session:
        gone = queue.take_out(session, stage.kind, entity_id, stage.name)
        audit.record(session, "stage.delete", str(stage), entity=entity_id, found=gone)
        return gone
