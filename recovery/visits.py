"""The sweep over visits of stages, and pages of walks, whose worker gave no sign of life in time (R1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app import claims, faults
from app.arrays import Array
from app.checks import limited
from app.claims import Key
from app.db import transaction
from app.settings import settings
from recovery import record
from recovery.record import Repaired
from stages.model import GUARD, VISIT, ResweepPart, StageVisit, VisitState

LIMIT = 1000


@dataclass(frozen=True)
class Report:
    lost: int = 0
    parked: int = 0
    more: bool = False


@limited
def run_once(limit: int = LIMIT) -> Report:
    """Puts back at most `limit` lost visits; those that died alone too often are parked. Any number may run at once."""
    with transaction() as session:
        rows = list(claims.overdue(session, StageVisit, limit, settings().lease))
        pages = claims.overdue(session, ResweepPart, limit, settings().lease)
        if not rows and not pages:
            return Report()
        lost = _without_living(session, rows)
        states = claims.time_out(session, StageVisit, lost)
        _free(session, lost)
        parked = [row for row in lost if states[(row.kind, row.entity_id, row.stage)] == VisitState.PARKED]
        _say_why(session, parked)
        walked = claims.time_out(session, ResweepPart, pages)
        record.record(session, [*_told(states), *_told(walked)])
        faults.reach("sweep.before_commit")
    faults.reach("sweep.committed")
    return Report(len(lost) + len(pages), len(parked), more=len(rows) == limit and len(lost) > 0)


def _told(states: Mapping[Key, str]) -> list[Repaired]:
    """`offer 12 expire`; of a page of a walk, its key."""
    return [
        Repaired(
            record.VISIT,
            " ".join(str(each) for each in key),
            record.LOST,
            "parked" if state == VisitState.PARKED else "queued",
        )
        for key, state in states.items()
    ]


def _without_living(session: Session, rows: Sequence[Row[Any]]) -> list[Row[Any]]:
    """S12: while somebody's transaction held the row of a visit, its worker could extend the guard only. It lives."""
    if not rows:
        return []
    same = [VISIT.c[name] == GUARD.c[name] for name in ("kind", "entity_id", "pass_key")]
    extended = (
        sa.update(VISIT)
        .where(_these(rows), *same, GUARD.c.until > sa.func.now())
        .values(recovery_time=GUARD.c.until)
        .returning(*claims.key_columns(StageVisit))
    )
    living = {claims.key_of(StageVisit, row) for row in session.execute(extended)}
    return [row for row in rows if claims.key_of(StageVisit, row) not in living]


def _these(rows: Sequence[Row[Any]]) -> sa.ColumnElement[bool]:
    return claims.among(StageVisit, [claims.key_of(StageVisit, row) for row in rows])


def _free(session: Session, rows: Sequence[Row[Any]]) -> None:
    """After the rows of the queue, as everybody who locks both."""
    for kind in sorted({row.kind for row in rows}):
        mine = [row for row in rows if row.kind == kind]
        session.execute(
            sa.delete(GUARD).where(
                GUARD.c.kind == kind,
                GUARD.c.entity_id == sa.any_(sa.cast([row.entity_id for row in mine], Array(sa.Text))),
                GUARD.c.pass_key == sa.any_(sa.cast([row.pass_key for row in mine], Array(sa.Uuid))),
            )
        )


def _say_why(session: Session, rows: Sequence[Row[Any]]) -> None:
    if rows:
        why = sa.literal("its worker died at it, alone, ") + sa.cast(VISIT.c.attempts, sa.Text) + " times"
        session.execute(sa.update(VISIT).where(_these(rows)).values(error=why, failed_at=sa.func.now()))
