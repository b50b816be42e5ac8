"""The sweep over jobs whose worker gave no sign of life in time (R1)."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.exc import IntegrityError

from app import claims, faults
from app.db import transaction
from app.jobs import endings
from app.jobs.model import Job, JobState, Outcome
from app.settings import settings

LIMIT = 1000


@dataclass(frozen=True)
class Report:
    lost: int = 0
    parked: int = 0
    absorbed: int = 0
    more: bool = False


def run_once(limit: int = LIMIT) -> Report:
    """Puts back at most `limit` lost jobs; those that died alone too often are parked. Any number may run at once."""
    for _ in range(3):
        try:
            return _sweep(limit)
        except IntegrityError:
            # A newer job with the key of one that goes back came in between: the next look sees it.
            continue
    return Report()


def _sweep(limit: int) -> Report:
    with transaction() as session:
        rows = claims.overdue(session, Job, limit, settings().lease)
        if not rows:
            return Report()
        gone = endings.absorbed(session, None, [row.id for row in rows])
        rows = [row for row in rows if row.id not in gone]
        states = claims.time_out(session, Job, rows)
        for row in rows:
            endings.log(session, row, Outcome.LOST, error=f"worker {row.claimed_by} gave no sign of life in time")
        faults.reach("sweep.before_commit")
    faults.reach("sweep.committed")
    parked = sum(state == JobState.PARKED for state in states.values())
    return Report(len(rows), parked, len(gone), more=len(rows) + len(gone) == limit)
