"""Taking work: one statement where a queue has no limits; under the row lock of the queue where it has.

The cursor. Entries of rows that were claimed stay in the index until vacuum, and a transaction held open elsewhere
keeps vacuum from removing them: a claim that began at the head of the queue would walk over all of them each time. So a
process remembers how far it has come in each rank, begins there, and goes back to the head after a short batch and
every second.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP
from sqlalchemy.engine import Row

from app import faults, limits
from app.claims.model import (
    Claimable,
    Executor,
    Lane,
    PassKey,
    built_once,
    distinct_prefix,
    is_running,
    is_waiting,
    key_columns,
    table_of,
)
from app.db import autocommit, transaction
from app.limits import Queue

REWIND_SECONDS = 1.0
RANKS_KEPT = 64


@dataclass
class Cursor:
    """How far this process has come in a queue and lane, by rank."""

    model: type[Claimable]
    queue: str
    lane: Lane = Lane.MAIN
    monotonic: Callable[[], float] = time.monotonic
    positions: dict[int, datetime | None] = field(default_factory=lambda: {0: None})
    rewound: float = 0.0
    limited: bool = False

    def advance(self, rows: tuple[Row[Any], ...]) -> None:
        for row in rows:
            self.positions[row.rank] = row.ready

    def stale(self) -> bool:
        return self.monotonic() - self.rewound >= REWIND_SECONDS

    def rewind(self, found: set[int]) -> bool:
        """Back to the head of every rank; whether there is one that was not known."""
        new = found - self.positions.keys()
        known = found | set(sorted(self.positions)[:RANKS_KEPT]) | {0}
        self.positions = dict.fromkeys(known)
        self.rewound = self.monotonic()
        return bool(new)


@dataclass(frozen=True)
class Claim:
    """What one claim got. `pace` says how many seconds after the claim each call may begin, where a rate rules."""

    pass_key: PassKey
    rows: tuple[Row[Any], ...] = ()
    pace: tuple[float, ...] = ()
    paused: bool = False


def take(cursor: Cursor, want: int, *, worker: str, lease: timedelta) -> Claim:
    """Claims up to `want` rows, best first. Fewer: no more are ready now, or the queue's limits say so."""
    if cursor.stale():
        _rewind(cursor)
    claim = _take(cursor, want, worker, lease)
    if not claim.rows and not claim.paused and _rewind(cursor):
        claim = _take(cursor, want, worker, lease)
    elif len(claim.rows) < want:
        # Short: whatever is behind the cursor is looked for with the next claim.
        cursor.rewound = 0.0
    cursor.advance(claim.rows)
    return claim


def _rewind(cursor: Cursor) -> bool:
    if not cursor.model.RANKED:
        return cursor.rewind({0})
    with autocommit() as connection:
        found = connection.execute(_ranks(cursor.model), {"p_queue": cursor.queue}).scalars()
        return cursor.rewind(set(found))


def _take(cursor: Cursor, want: int, worker: str, lease: timedelta) -> Claim:
    if not cursor.limited:
        with autocommit() as connection:
            claim, cursor.limited = _claim(connection, cursor, want, worker, lease, under_limits=False)
        if not cursor.limited:
            faults.reach("claim.committed")
            return claim
    with transaction() as session:
        allowed = limits.lock(session, cursor.queue)
        live = 0
        if allowed.max_parallel is not None:
            live = session.execute(_live(cursor.model), {"p_queue": cursor.queue}).scalar_one()
        granted = limits.grant(allowed, live, want)
        cursor.limited = allowed.max_parallel is not None or allowed.rate is not None
        if not granted.count:
            return Claim(new_pass(), paused=allowed.paused)
        claim, _ = _claim(session, cursor, granted.count, worker, lease, under_limits=True)
        limits.spend(session, cursor.queue, granted, len(claim.rows))
        faults.reach("claim.before_commit")
    faults.reach("claim.committed")
    return Claim(claim.pass_key, claim.rows, granted.pace[: len(claim.rows)] if granted.paced else ())


def new_pass() -> PassKey:
    """Random, never from a sequence: a restored backup hands out the same numbers again."""
    return PassKey(uuid.uuid4())


def _claim(
    executor: Executor, cursor: Cursor, want: int, worker: str, lease: timedelta, *, under_limits: bool
) -> tuple[Claim, bool]:
    pass_key = new_pass()
    ranks = sorted(cursor.positions)
    # Not the names of columns: SQLAlchemy would take them for values of the update.
    parameters = {
        "p_queue": cursor.queue,
        "p_ranks": ranks,
        "p_after": [cursor.positions[rank] for rank in ranks],
        "p_want": want,
        "p_pass_key": pass_key,
        "p_lease": lease,
        "p_worker": worker,
    }
    rows = executor.execute(_statement(cursor.model, cursor.lane, under_limits), parameters).all()
    paused, limited = bool(rows[0].queue_paused), bool(rows[0].queue_limited)
    taken = tuple(row for row in rows if row.pass_key is not None)
    return Claim(pass_key, taken, paused=paused), limited and not under_limits


@built_once
def _live(model: type[Claimable]) -> sa.Select[int]:
    return sa.select(sa.func.count(sa.distinct(model.pass_key))).where(
        model.queue == sa.bindparam("p_queue"), is_running(model)
    )


@built_once
def _ranks(model: type[Claimable]) -> sa.Select[int]:
    found = distinct_prefix(model, is_waiting(model) & (model.queue == sa.bindparam("p_queue")), model.rank)
    return sa.select(found.c.rank)


@built_once
def _statement(model: type[Claimable], lane: Lane, under_limits: bool) -> sa.Select[Any]:  # noqa: FBT001
    """Finds the best, marks them ours, and says whether the queue is paused or has limits: one round trip.

    LIMIT is a literal: under a generic plan a parameter there gave a sequential scan.
    """
    want = sa.bindparam("p_want", type_=sa.Integer, literal_execute=True)
    queue = sa.bindparam("p_queue", type_=sa.Text)
    limited = sa.or_(Queue.max_parallel.is_not(None), Queue.rate.is_not(None))
    settings = sa.select(Queue.paused, limited.label("limited")).where(Queue.name == queue).cte("settings")
    shut = settings.c.paused if under_limits else sa.or_(settings.c.paused, settings.c.limited)
    best = _best(model, lane, queue, want)
    picked = (
        sa.select(*best.c)
        .where(~sa.exists().where(shut).select_from(settings))
        .limit(want)
        .cte("picked")
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )
    chosen = _together(model, picked)
    table = table_of(model)
    claimed = (
        sa.update(table)
        .where(*(column == chosen.c[column.name] for column in key_columns(model)))
        .values(
            state=model.RUNNING,
            pass_key=sa.bindparam("p_pass_key", type_=sa.Uuid),
            recovery_time=sa.func.now() + sa.bindparam("p_lease", type_=sa.Interval),
            attempts=table.c.attempts + 1,
            claimed_at=sa.func.now(),
            claimed_by=sa.bindparam("p_worker", type_=sa.Text),
        )
        .returning(table, chosen.c.ready)
        .cte("claimed")
    )
    one = sa.select(sa.literal(1).label("one")).subquery("one")
    return (
        sa.select(settings.c.paused.label("queue_paused"), settings.c.limited.label("queue_limited"), *claimed.c)
        .select_from(one.outerjoin(settings, sa.true()).outerjoin(claimed, sa.true()))
        .order_by(claimed.c.rank, claimed.c.ready, *(claimed.c[column.name] for column in key_columns(model)))
    )


def _best(model: type[Claimable], lane: Lane, queue: Any, want: Any) -> sa.Subquery:
    """The first rows of each rank, rank by rank; lazily, so that no more are locked than are taken."""
    table, ready, key = table_of(model), model.ready(lane), key_columns(model)
    ranks = (
        sa.func.unnest(
            sa.bindparam("p_ranks", type_=ARRAY(sa.SmallInteger)),
            sa.bindparam("p_after", type_=ARRAY(TIMESTAMP(timezone=True))),
        )
        .table_valued(sa.column("rank", sa.SmallInteger), sa.column("after", TIMESTAMP(timezone=True)))
        .render_derived(name="ranks")
    )
    begin = sa.func.coalesce(ranks.c.after, sa.literal_column("'-infinity'::timestamptz"))
    of_rank = (
        sa.select(*key, table.c.rank, table.c.alone, ready.label("ready"))
        .where(table.c.queue == queue, is_waiting(model), ready >= begin, ready <= sa.func.now())
        .order_by(ready, *key)
        .limit(want)
        .with_for_update(skip_locked=True)
    )
    if model.RANKED:
        of_rank = of_rank.where(table.c.rank == ranks.c.rank)
    first = of_rank.lateral("of_rank")
    return sa.select(*first.c).select_from(ranks.join(first, sa.true())).subquery("best")


def _together(model: type[Claimable], picked: sa.CTE) -> sa.CTE:
    """A row that is to be alone is taken alone, and only when it is the first."""
    order = (picked.c.rank, picked.c.ready, *(picked.c[column.name] for column in key_columns(model)))
    ranked = sa.select(
        *picked.c,
        sa.func.row_number().over(order_by=order).label("place"),
        sa.func.first_value(picked.c.alone).over(order_by=order).label("first_alone"),
    ).subquery("ranked")
    together = sa.or_(
        sa.and_(ranked.c.first_alone, ranked.c.place == 1), sa.and_(~ranked.c.first_alone, ~ranked.c.alone)
    )
    return sa.select(*ranked.c).where(together).cte("chosen")
