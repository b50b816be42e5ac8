"""The sweep over jobs whose worker gave no sign of life in time (R1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session

from app import claims, faults
from app.checks import limited
from app.db import transaction
from app.jobs import endings
from app.jobs.model import JOB, Job, JobState, Outcome
from app.settings import settings
from recovery import record
from recovery.record import Repaired

LIMIT = 1000
LOCK_TIMEOUT = "200ms"
_SILENT = "gave no sign of life in time"
_ACTIONS = {str(JobState.PARKED): "parked"}


@dataclass(frozen=True)
class Report:
    """`blocked`: a stranger's open transaction enqueues their key; the next sweep tries again."""

    lost: int = 0
    parked: int = 0
    absorbed: int = 0
    blocked: int = 0
    more: bool = False


@limited
def run_once(limit: int = LIMIT) -> Report:
    """Puts back at most `limit` lost jobs; those that died alone too often are parked. Any number may run at once."""
    with transaction() as session:
        session.execute(sa.select(sa.func.set_config("lock_timeout", LOCK_TIMEOUT, True)))
        rows = claims.overdue(session, Job, limit, settings().lease)
        if not rows:
            return Report()
        repairs = list[Repaired]()
        report = _put_back(session, rows, repairs)
        if report is None:
            # One of them stands in the way; it must not hold up the others.
            singly = [_put_back(session, [row], repairs) for row in sorted(rows, key=lambda row: (row.queue, row.id))]
            done = [each for each in singly if each is not None]
            report = Report(
                sum(each.lost for each in done),
                sum(each.parked for each in done),
                sum(each.absorbed for each in done),
                singly.count(None),
            )
        record.record(session, repairs)
        faults.reach("sweep.before_commit")
    faults.reach("sweep.committed")
    return replace(report, more=len(rows) == limit and report.lost > 0)


def _say_why(session: Session, keys: Sequence[claims.Key]) -> None:
    if keys:
        why = sa.literal("worker ") + JOB.c.claimed_by + sa.literal(f" {_SILENT}")
        session.execute(sa.update(JOB).where(claims.among(Job, keys)).values(error=why))


def _put_back(session: Session, rows: Sequence[Row[Any]], repairs: list[Repaired]) -> Report | None:
    """All of them, or none."""
    try:
        with session.begin_nested():
            gone = endings.absorbed(session, None, [row.id for row in rows])
            left = [row for row in rows if row.id not in gone]
            for worker in {row.claimed_by for row in left}:
                ids = [row.id for row in left if row.claimed_by == worker]
                endings.log(session, ids, Outcome.LOST, error=f"worker {worker} {_SILENT}")
            states = claims.time_out(session, Job, left)
            _say_why(session, [key for key, state in states.items() if state == JobState.PARKED])
    except (IntegrityError, OperationalError):
        return None
    repairs += [Repaired(record.JOB, str(job), record.LOST, "absorbed by a newer one") for job in sorted(gone)]
    repairs += [
        Repaired(record.JOB, str(key[0]), record.LOST, _ACTIONS.get(state, "queued")) for key, state in states.items()
    ]
    return Report(len(left), sum(state == JobState.PARKED for state in states.values()), len(gone))
