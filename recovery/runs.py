"""The sweep over runs of reactive tasks whose worker gave no sign of life in time (R1): each counts as a failure of
its task, so one that kills its workers ends in quarantine (T22)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app import claims, faults
from app.checks import limited
from app.claims import storm
from app.db import transaction
from app.settings import settings
from recovery import record
from recovery.record import Repaired
from triggers import endings
from triggers.model import RUN, RunState, TaskRun
from triggers.starting import start_ready

LIMIT = 1000


@dataclass(frozen=True)
class Report:
    """`busy`: their tasks are being changed just now; the next sweep tries again."""

    lost: int = 0
    quarantined: int = 0
    busy: int = 0
    more: bool = False


@limited
def run_once(limit: int = LIMIT) -> Report:
    """Ends at most `limit` lost claims. Any number may run at once."""
    with transaction() as session:
        rows = claims.overdue(session, TaskRun, limit, settings().lease)
        if not rows:
            return Report()
        states = [_end(session, row) for row in rows]
        _spread(session, [row for row, state in zip(rows, states, strict=True) if state is RunState.WAITING])
        record.record(session, [_told(row, state) for row, state in zip(rows, states, strict=True) if state])
        faults.reach("sweep.before_commit")
    faults.reach("sweep.committed")
    if over := [row.task for row, state in zip(rows, states, strict=True) if state is RunState.FAILED]:
        # T16: the end of a run is an event, whoever ended it.
        with transaction() as session:
            start_ready(session, over, "end")
    busy = states.count(None)
    return Report(len(rows) - busy, states.count(RunState.FAILED), busy, more=len(rows) == limit and busy < limit)


def _told(row: Row[Any], state: RunState) -> Repaired:
    return Repaired(record.RUN, str(row.id), record.LOST, "queued" if state is RunState.WAITING else f"{state}")


def _spread(session: Session, rows: Sequence[Row[Any]]) -> None:
    """R11: those that wait again come in their turn, after their backoff."""
    turns = storm.delays(session, [row.queue for row in rows])
    for row, turn in zip(rows, turns, strict=True):
        if turn:
            later = RUN.c.not_before + timedelta(seconds=turn)
            session.execute(sa.update(RUN).where(RUN.c.id == row.id).values(not_before=later))


def _end(session: Session, row: Row[Any]) -> RunState | None:
    # Whoever holds the task may wait for the row of the run, which this sweep has locked: it must not wait in turn.
    if endings.lock_task(session, row.task, skip_locked=True) is None and endings.exists(session, row.task):
        return None
    return endings.lost(session, row, f"worker {row.claimed_by} gave no sign of life in time")
