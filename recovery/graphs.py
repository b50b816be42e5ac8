"""The sweep over graphs that nothing has changed for their `idle_process_timeout` (R4): why they stand is found out,
what is wrong is put right, and the next look is planned.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app import claims, faults
from app.arrays import Array
from app.checks import limited
from app.db import autocommit, engine
from app.errors import Unavailable
from app.settings import settings
from processes.model import GRAPH, PREFERENCES, PROCESS
from processes.statements import IDLE, NOW
from processes.states import ENDED
from recovery import healing
from recovery.findings import Verdict
from recovery.healing import Examined, Healed

log = logging.getLogger(__name__)

LIMIT = 1000


@dataclass(frozen=True)
class Report:
    """`repaired`: processes of which something was put right; `broken`: that have lost what nobody can put right;
    `busy`: somebody changes them just now; `failed`: that cannot be looked at; `why`: how often each diagnosis was made
    of the rest."""

    examined: int = 0
    repaired: int = 0
    broken: int = 0
    busy: int = 0
    failed: int = 0
    why: dict[str, int] = field(default_factory=dict)
    more: bool = False


@limited
def run_once(limit: int = LIMIT) -> Report:
    """Looks at no more than `limit` graphs. Any number may run at once."""
    with autocommit() as connection:
        ids = connection.execute(_idle(), {"p_limit": limit, "p_lease": settings().lease}).scalars().all()
    reports = [look(ids[first : first + healing.BATCH]) for first in range(0, len(ids), healing.BATCH)]
    done = Report(*(sum(getattr(each, word) for each in reports) for word in _WORDS))
    why = Counter[str]()
    for each in reports:
        why.update(each.why)
    return replace(done, why=dict(why), more=len(ids) == limit and done.busy < limit)


_WORDS = ("examined", "repaired", "broken", "busy", "failed")


def look(ids: Sequence[int]) -> Report:
    """At a batch: without locks first, and again, under lock, at what seems to be wrong."""
    try:
        examined = _examine(ids)
        wrong = [each.process_id for each in examined if each.wrong]
    except Unavailable:
        raise
    except Exception:
        # R3: whichever it is, it is found out under lock.
        log.exception("graphs are looked at one by one")
        examined, wrong = [], list(ids)
    healed = _heal(wrong, [each for each in ids if each not in wrong])
    return _report(len(ids), examined, healed)


def _examine(ids: Sequence[int]) -> list[Examined]:
    as_it_was = engine().execution_options(isolation_level="REPEATABLE READ")
    with as_it_was.begin() as connection:
        return healing.examine(connection, ids)


def _heal(wrong: Sequence[int], sound: Sequence[int]) -> list[Healed]:
    with engine().begin() as connection:
        healed = healing.heal(connection, wrong) if wrong else []
        # Also those that cannot be looked at: they must not keep the others from their turn.
        connection.execute(_planning(), {"p_ids": [*(each.process_id for each in healed if not each.busy), *sound]})
        faults.reach("sweep.before_commit")
    faults.reach("sweep.committed")
    healing.ring(healed)
    return healed


def _report(count: int, examined: Sequence[Examined], healed: Sequence[Healed]) -> Report:
    why = Counter[str]()
    for each in examined:
        if not each.wrong:
            why.update(finding.case for finding in each.findings)
    verdicts = [{finding.verdict for finding in each.repaired} for each in healed]
    return Report(
        examined=count,
        repaired=sum(Verdict.REPAIRABLE in each for each in verdicts),
        broken=sum(Verdict.BROKEN in each for each in verdicts),
        busy=sum(each.busy for each in healed),
        failed=sum(each.failed is not None for each in healed),
        why=dict(why),
    )


@cache
def _idle() -> sa.Select[Any]:
    """Only some time after the server came: workers are to ask for work first (R4, R6)."""
    late = GRAPH.c.recovery_time < sa.func.now()
    query = sa.select(GRAPH.c.process_id).where(GRAPH.c.recovery_time.is_not(None), late, claims.up_for_a_lease())
    return query.order_by(GRAPH.c.recovery_time).limit(sa.bindparam("p_limit", type_=sa.Integer))


@cache
def _planning() -> Any:
    """When these are looked at the next time. What somebody changes just now is planned by him."""
    these = GRAPH.c.process_id == sa.any_(sa.bindparam("p_ids", type_=Array(sa.BigInteger)))
    late = GRAPH.c.recovery_time < sa.func.now()
    free = sa.select(GRAPH.c.process_id).where(these, late).order_by(GRAPH.c.process_id)
    ours = free.with_for_update(skip_locked=True).cte("ours")
    idle = (
        sa.select(sa.func.coalesce(PREFERENCES.c.idle_process_timeout, IDLE))
        .select_from(PROCESS.outerjoin(PREFERENCES, PREFERENCES.c.name == PROCESS.c.name))
        .where(PROCESS.c.id == GRAPH.c.process_id, PROCESS.c.state.not_in(ENDED))
        .scalar_subquery()
    )
    return sa.update(GRAPH).where(GRAPH.c.process_id == ours.c.process_id).values(recovery_time=NOW + idle)


def plan(connection: Connection, ids: Sequence[int]) -> None:
    """When these are looked at the next time, where that is past."""
    connection.execute(_planning(), {"p_ids": list(ids)})
