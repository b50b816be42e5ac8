"""The sweep over processes whose `recovery_time` is past (R5): registered and never begun; done and not finished;
longer at it than their `process_timeout`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa

from app import claims, faults
from app.arrays import Array
from app.checks import limited
from app.db import autocommit, engine
from app.settings import settings
from processes import starting
from processes.model import PROCESS
from processes.statements import IDLE, NOW
from processes.states import ProcessState
from recovery import healing
from recovery.findings import Case
from recovery.healing import Healed

LIMIT = 1000


@dataclass(frozen=True)
class Report:
    """`broken`: by their time, or for what they have lost; `repaired`: something else was put right."""

    begun: int = 0
    finished: int = 0
    broken: int = 0
    repaired: int = 0
    busy: int = 0
    failed: int = 0
    more: bool = False


@limited
def run_once(limit: int = LIMIT) -> Report:
    """Any number may run at once."""
    with autocommit() as connection:
        ids = connection.execute(_late(), {"p_limit": limit, "p_lease": settings().lease}).scalars().all()
    reports = [_look(ids[first : first + healing.BATCH]) for first in range(0, len(ids), healing.BATCH)]
    # What was registered is begun by whoever comes by, also before its time is over.
    begun = starting.run_once(limit)
    done = {word: sum(getattr(each, word) for each in reports) for word in _WORDS}
    moved = sum(done[word] for word in ("begun", "finished", "broken", "repaired"))
    done["begun"] += begun.begun
    return Report(**done, more=begun.more or (len(ids) == limit and moved > 0))


_WORDS = ("begun", "finished", "broken", "repaired", "busy", "failed")


def _look(ids: Sequence[int]) -> Report:
    with engine().begin() as connection:
        healed = healing.heal(connection, ids)
        if failed := [each.process_id for each in healed if each.failed is not None]:
            connection.execute(_later(), {"p_ids": failed})
        faults.reach("sweep.before_commit")
    faults.reach("sweep.committed")
    healing.ring(healed)
    return _report(healed)


def _report(healed: Sequence[Healed]) -> Report:
    cases = [{finding.case for finding in each.repaired} for each in healed]
    begun, finished = (sum(case in each for each in cases) for case in (Case.NEVER_BEGUN, Case.ALL_DONE))
    broken = sum(not each.isdisjoint(_BROKEN) for each in cases)
    return Report(
        begun=begun,
        finished=finished,
        broken=broken,
        repaired=sum(bool(each) for each in cases) - begun - finished - broken,
        busy=sum(each.busy for each in healed),
        failed=sum(each.failed is not None for each in healed),
    )


_BROKEN = (Case.OVER_TIME, Case.TASK_LOST, Case.VALUE_LOST, Case.WAITS_FOR_NOTHING)


@cache
def _late() -> sa.Select[Any]:
    """Nobody can report to what has not begun."""
    late = sa.and_(PROCESS.c.recovery_time.is_not(None), PROCESS.c.recovery_time < sa.func.now())
    registered = PROCESS.c.state == sa.literal_column(f"'{ProcessState.REGISTERED}'")
    query = sa.select(PROCESS.c.id).where(late, sa.or_(registered, claims.up_for_a_lease()))
    return query.order_by(PROCESS.c.recovery_time).limit(sa.bindparam("p_limit", type_=sa.Integer))


@cache
def _later() -> Any:
    """What cannot be looked at must not keep the others from their turn."""
    these = PROCESS.c.id == sa.any_(sa.bindparam("p_ids", type_=Array(sa.BigInteger)))
    goes_on = PROCESS.c.state.in_([ProcessState.REGISTERED, ProcessState.ACTIVE, ProcessState.BROKEN])
    return sa.update(PROCESS).where(these, goes_on).values(recovery_time=NOW + IDLE)
