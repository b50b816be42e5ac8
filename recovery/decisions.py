"""The sweep over decisions whose time is over (R1, R2): answers that did not come, and tasks that waited too long."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app import claims, faults
from app.checks import limited
from app.db import autocommit, engine
from app.errors import Unavailable
from app.settings import settings
from processes.accepting import ring
from processes.model import DECISION, Decision, Key
from processes.states import DecisionState
from processes.timeouts import INCONSISTENT, Lapsed, Overdue, Told, lapse
from recovery import healing, record, restarting
from recovery.findings import Case
from recovery.record import RepairedTasks
from recovery.restarting import Restarted

log = logging.getLogger(__name__)

LIMIT = 1000


@dataclass(frozen=True)
class Report:
    """`restarted`: handed out again; `ended`: with an error; `broken`: of these, tasks that are broken now;
    `inconsistent`: decisions that nobody could make; `busy`: their processes are changed just now, and the next sweep
    looks again; `failed`: processes that cannot be looked at."""

    restarted: int = 0
    ended: int = 0
    broken: int = 0
    inconsistent: int = 0
    busy: int = 0
    failed: int = 0
    more: bool = False


@limited
def run_once(limit: int = LIMIT) -> Report:
    """Looks at no more than `limit` overdue decisions of each kind. Any number may run at once."""
    with autocommit() as connection:
        # Mostly there is nothing, and to see that takes a tenth of what it takes to begin the rest.
        any_late, waiting = bool(_unanswered(connection, 1).left), _waited(connection, limit)
    restarted = _restarted(limit) if any_late else Restarted()
    lapsed = list[Lapsed | None]()
    if restarted.left or waiting:
        overdue = Overdue([*restarted.left, *waiting], restarted.in_batch, frozenset(waiting))
        lapsed = _swept(overdue, spare_lost=True)
        if lost := {each for one in lapsed if one is not None for each in one.lost}:
            _restore(sorted(lost))
            lapsed += _swept(overdue.of(lost), spare_lost=False)
    done = [one for one in lapsed if one is not None]
    words = ("restarted", "ended", "broken", "inconsistent", "busy")
    found = Report(**{word: sum(getattr(one, word) for one in done) for word in words})
    found = replace(found, restarted=found.restarted + restarted.count, failed=lapsed.count(None))
    full = limit in (restarted.count + len(restarted.left), len(waiting))
    return replace(found, more=full and found.restarted + found.ended + found.inconsistent > 0)


def _restarted(limit: int) -> Restarted:
    """Of what was not answered in time, most is handed out again, all at once."""
    try:
        with engine().begin() as connection:
            done = restarting.restart(connection, limit)
            faults.reach("sweep.before_commit")
    except Unavailable:
        raise
    except Exception:
        # R3: one of them must not stop the rest.
        log.exception("overdue decisions are not put back all at once")
        with autocommit() as connection:
            return _unanswered(connection, limit)
    faults.reach("sweep.committed")
    ring(done.actors)
    return done


def _swept(overdue: Overdue, *, spare_lost: bool) -> list[Lapsed | None]:
    """All at once, or else each process by itself; None: one that cannot be looked at."""
    try:
        return [_lapse(overdue, spare_lost=spare_lost)]
    except Unavailable:
        raise
    except Exception:
        # R3: one of them must not stop the rest.
        log.exception("overdue decisions are looked at process by process")
        ids = sorted({key[0] for key in overdue.keys})
        return [_alone(process_id, overdue, spare_lost=spare_lost) for process_id in ids]


def _lapse(overdue: Overdue, *, spare_lost: bool) -> Lapsed:
    with engine().begin() as connection:
        lapsed = lapse(connection, overdue, spare_lost=spare_lost)
        record.record_tasks(connection, [_repaired(each) for each in lapsed.told])
        faults.reach("sweep.before_commit")
    faults.reach("sweep.committed")
    ring(lapsed.ready)
    return lapsed


def _repaired(told: Told) -> RepairedTasks:
    finding = Case.TASK_LOST.value if told.what == INCONSISTENT else record.WORK_TIMEOUT
    return RepairedTasks(finding, told.what, told.process_ids, told.numbers)


def _restore(ids: Sequence[int]) -> None:
    """Without its graph, nothing of a process can be decided; but all that it says can be said again."""
    with engine().begin() as connection:
        healed = healing.heal(connection, ids)
    healing.ring(healed)


def _alone(process_id: int, overdue: Overdue, *, spare_lost: bool) -> Lapsed | None:
    try:
        return _lapse(overdue.of({process_id}), spare_lost=spare_lost)
    except Unavailable:
        raise
    except Exception:
        log.exception("the overdue decisions of process %s cannot be looked at", process_id)
        return None


def _unanswered(connection: Connection, limit: int) -> Restarted:
    """None; all of them are left."""
    late = claims.overdue(connection, Decision, limit, settings().lease, lock=False)
    keys = {(row.process_id, row.number): row.in_batch for row in late}
    return Restarted(left=tuple(keys), in_batch=frozenset(key for key, in_batch in keys.items() if in_batch))


def _waited(connection: Connection, limit: int) -> list[Key]:
    parameters = {"p_limit": limit, "p_lease": settings().lease}
    return [(row.process_id, row.number) for row in connection.execute(_too_long(), parameters)]


@cache
def _too_long() -> sa.Select[Any]:
    waits = DECISION.c.state == sa.literal_column(f"'{DecisionState.QUEUED}'")
    late = sa.and_(DECISION.c.recovery_time.is_not(None), DECISION.c.recovery_time < sa.func.now())
    query = sa.select(DECISION.c.process_id, DECISION.c.number).where(waits, late, claims.up_for_a_lease())
    query = query.order_by(DECISION.c.recovery_time)
    return query.limit(sa.bindparam("p_limit", type_=sa.Integer))
