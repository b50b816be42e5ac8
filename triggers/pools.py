"""Pools: how many reactive tasks run at once, and how often one may start, for the whole cluster (T20).

A pool is the queue `reactive.<name>` with its limits, and how fast what waits in it ages. What the code declares is
applied when it changes; what an operator sets in between lasts over restarts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from app import audit, limits
from app.checks import check_limits, checked_span
from app.db import transaction
from app.limits import UNCHANGED, Queue
from triggers.definition import checked_pool, queue_of
from triggers.model import RUN, ReactivePool, TaskRun

AGEING = timedelta(minutes=1)
MAX_HOLD = timedelta(minutes=30)


@dataclass(frozen=True)
class Pool:
    name: str
    max_parallel: int | None
    rate_limit: str | None
    #: In seconds, as they are stored.
    ageing: float
    max_hold: float


declared: dict[str, Pool] = {}
_TIMES = ("ageing", "max_hold")


def pool(
    name: str,
    *,
    max_parallel: int | None = None,
    rate_limit: str | None = None,
    max_hold: str | float | timedelta = MAX_HOLD,
    ageing: str | float | timedelta = AGEING,
) -> Pool:
    """Declares the limits of a pool: at most `max_parallel` runs at once and `rate_limit` starts, such as `10/min`.
    Whoever waits for `ageing` counts as one priority more; `max_hold` caps how long it may be held for another's sake.
    """
    words = f"pool {checked_pool(name)}"
    check_limits(words, max_parallel, rate_limit)
    ages = checked_span(words, "ageing", ageing, "100ms").total_seconds()
    hold = checked_span(words, "max_hold", max_hold).total_seconds()
    made = declared[name] = Pool(name, max_parallel, rate_limit, ages, hold)
    return made


def write_declared(session: Session, names: set[str]) -> None:
    """The pools of the declared tasks, and those declared themselves. Of the latter, only what the code says otherwise
    than before is set: the rest may have been set by an operator."""
    wanted = {
        name: Pool(name, None, None, AGEING.total_seconds(), MAX_HOLD.total_seconds()) for name in names
    } | declared
    query = sa.select(ReactivePool.name, ReactivePool.declared).where(ReactivePool.name.in_(wanted))
    before: dict[str, Any] = {row.name: row.declared for row in session.execute(query)}
    for name in sorted(wanted):
        words = asdict(wanted[name])
        if name in before and (before[name] == words or name not in declared):
            continue
        said = before.get(name) or {}
        times = {word: timedelta(seconds=words[word]) for word in _TIMES if words[word] != said.get(word)}
        values: dict[str, Any] = times | {"declared": words if name in declared else None}
        insert = postgresql.insert(ReactivePool).values(name=name, **values)
        session.execute(insert.on_conflict_do_update(index_elements=["name"], set_=values))
        if name in declared:
            limits.configure(session, queue_of(name), **limits.moved(words, said))


def configure(
    name: str,
    *,
    max_parallel: int | None = UNCHANGED,
    rate_limit: str | None = UNCHANGED,
    paused: bool = UNCHANGED,
    reason: str | None = None,
) -> None:
    """Sets the limits of a pool from now on; what is left out stays. Claims that run now run on."""
    asked = {"max_parallel": max_parallel, "rate_limit": rate_limit, "paused": paused}
    said: dict[str, Any] = {word: value for word, value in asked.items() if value is not UNCHANGED}
    check_limits(f"pool {checked_pool(name)}", said.get("max_parallel"), said.get("rate_limit"))
    with transaction() as session:
        session.execute(postgresql.insert(ReactivePool).values(name=name).on_conflict_do_nothing())
        limits.configure(session, queue_of(name), max_parallel=max_parallel, rate=rate_limit, paused=paused)
        audit.record(session, "reactive.pool", name, reason=reason, **said)


@dataclass(frozen=True)
class Aged:
    raised: int = 0


#: A rank is a small integer; the best that ageing comes to.
BEST_RANK = -32_000


def age(limit: int = 10_000) -> Aged:
    """Raises by one priority what has waited for another `ageing` of its pool, so that none starves."""
    steps = sa.func.floor(
        sa.extract("epoch", sa.func.now() - RUN.c.created_at) / sa.extract("epoch", ReactivePool.ageing)
    )
    # T21: for `max_hold`, not past a slot that is kept against what is less important than it. After that it ages on:
    # slots may be kept again and again, for one run that delivers after the other (T20).
    kept, held = limits.kept_now().subquery("kept"), sa.func.now() - RUN.c.created_at <= ReactivePool.max_hold
    behind = sa.select(sa.func.max(kept.c.rank) + 1).where(kept.c.rank < -RUN.c.priority, held)
    behind = behind.correlate(Queue, RUN, ReactivePool)
    rank = sa.cast(sa.func.greatest(BEST_RANK, -RUN.c.priority - steps, behind.scalar_subquery()), sa.SmallInteger)
    older = (
        sa.select(RUN.c.id, rank.label("aged"))
        .join(ReactivePool, RUN.c.queue == queue_of("") + ReactivePool.name)
        .outerjoin(Queue, Queue.name == RUN.c.queue)
        .where(TaskRun.state == sa.literal_column("'waiting'"), rank < RUN.c.rank)
        .limit(limit)
        .with_for_update(of=RUN, skip_locked=True)
        .cte("older")
    )
    with transaction() as session:
        update = sa.update(RUN).where(RUN.c.id == older.c.id).values(rank=older.c.aged).returning(RUN.c.id)
        return Aged(len(session.execute(update).all()))
