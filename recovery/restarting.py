"""The sweep's statement over hand-outs that were not answered in time: finds them, locks their graphs, puts back what
may be handed out again, and records that. What it tells is how many these were, and which are left.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import Connection

from app import claims
from app.claims.model import built_once
from app.prepared import Prepared
from app.settings import settings
from processes import lapsing, timeouts
from processes.model import GRAPH, Decision, Key
from processes.statements import KEY
from processes.timeouts import AGAIN
from recovery import record


@dataclass(frozen=True)
class Restarted:
    """How many of each actor; and what is to be looked at one by one: something holds their graphs, or they are not to
    be handed out again."""

    actors: Counter[str] = field(default_factory=Counter)
    left: tuple[Key, ...] = ()
    #: Of these, whose worker had others at the same time.
    in_batch: frozenset[Key] = frozenset()

    @property
    def count(self) -> int:
        return sum(self.actors.values())


def restart(connection: Connection, limit: int) -> Restarted:
    """In a transaction of the caller's, of which it is nearly all: it ends with the counters."""
    parameters = {"p_lease": settings().lease, "p_rate": float(settings().repair_rate)}
    rows = _sweeping(limit).execute(connection, parameters).all()
    actors = Counter({row.actor: row.times for row in rows if row.actor is not None})
    keys = [key for row in rows if row.actor is None for key in zip(row.ids, row.numbers, row.alone, strict=True)]
    if actors:
        timeouts.count(connection, actors, {record.counted(record.WORK_TIMEOUT): sum(actors.values())})
    return Restarted(actors, tuple(key[:2] for key in keys), frozenset(key[:2] for key in keys if key[2]))


@built_once
def _sweeping(limit: int) -> Prepared:
    late = claims.finding_overdue(Decision, limit, lock=False).cte("late")
    ids = sa.func.array(sa.select(late.c.process_id).scalar_subquery(), type_=ARRAY(sa.BigInteger))
    graphs = sa.select(GRAPH.c.process_id).where(GRAPH.c.process_id == sa.any_(ids)).order_by(GRAPH.c.process_id)
    # The graphs first, as everybody. Whoever holds one now changes it: the next sweep looks again.
    locked = graphs.with_for_update(skip_locked=True).cte("locked")
    true = sa.true()
    known = sa.select(
        *(late.c[name] for name in KEY), true.label("in_work"), late.c.in_batch.label("alone"), true.label("graph")
    )
    keys = known.join(locked, locked.c.process_id == late.c.process_id).order_by(*(late.c[name] for name in KEY))
    queued, moved = lapsing.restarts(keys.cte("keys"), lapsing.OVERDUE)
    told = record.telling(queued, record.WORK_TIMEOUT, AGAIN).cte("told")
    none = sa.null()
    empty = (sa.cast(none, ARRAY(kind)).label(name) for name, kind in _LEFT.items())
    done: sa.Select[Any] = sa.select(queued.c.actor, sa.func.count().label("times"), *empty).group_by(queued.c.actor)
    same = sa.and_(*(queued.c[name] == late.c[name] for name in KEY))
    columns = zip(_LEFT, (late.c.process_id, late.c.number, late.c.in_batch), strict=True)
    left = (
        sa.select(
            sa.cast(none, sa.Text),
            sa.func.count(),
            *(sa.func.array_agg(column).label(name) for name, column in columns),
        )
        .where(~sa.exists().where(same))
        .having(sa.func.count() > 0)
    )
    return Prepared(f"decisions_swept_{limit}", sa.union_all(done, left).add_cte(moved, told))


_LEFT: dict[str, sa.types.TypeEngine[Any]] = {"ids": sa.BigInteger(), "numbers": sa.Integer(), "alone": sa.Boolean()}
