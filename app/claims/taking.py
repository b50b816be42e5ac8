"""Taking work: one statement where a queue has no limits; under the row lock of the queue where it has."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy.engine import Connection, Row

from app import faults, limits
from app.claims.cursor import Cursor
from app.claims.model import Executor, PassKey
from app.claims.statements import SIZES, claiming, live, prepared, ranks_in_use
from app.db import autocommit, transaction
from app.ranks import Rank, most_rank


@dataclass(frozen=True)
class Claim:
    """What one claim got. `pace` says how many seconds after the claim each call may begin, where a rate rules."""

    pass_key: PassKey
    rows: tuple[Row[Any], ...] = ()
    pace: tuple[float, ...] = ()
    paused: bool = False


@dataclass(frozen=True)
class _Taken:
    claim: Claim
    limited: bool
    unknown_rank: bool


def take(cursor: Cursor, want: int, *, worker: str, lease: timedelta) -> Claim:
    """Claims up to `want` rows, best first. Fewer: no more are ready now, or the queue's limits say so."""
    size = max(each for each in SIZES if each <= want)
    taken = _take(cursor, size, worker, lease)
    if taken.unknown_rank:
        with autocommit() as connection:
            in_use = set(connection.execute(ranks_in_use(cursor.model), {"p_queue": cursor.queue}).scalars())
        cursor.learn(in_use)
        if not taken.claim.rows:
            taken = _take(cursor, size, worker, lease)
    cursor.advance(taken.claim.rows, size)
    return taken.claim


def _take(cursor: Cursor, want: int, worker: str, lease: timedelta) -> _Taken:
    if not cursor.limited:
        with autocommit() as connection:
            taken = _claim(connection, cursor, want, worker, lease, under_limits=False)
        if not taken.limited:
            faults.reach("claim.committed")
            return taken
        cursor.limited = True
    return _take_under_limits(cursor, want, worker, lease)


def _take_under_limits(cursor: Cursor, want: int, worker: str, lease: timedelta) -> _Taken:
    with transaction() as session:
        allowed = limits.lock(session, cursor.queue)
        cursor.limited = allowed.max_parallel is not None or allowed.rate is not None
        running = 0
        if allowed.max_parallel is not None:
            running = session.execute(live(cursor.model), {"p_queue": cursor.queue}).scalar_one()
        granted = limits.grant(allowed, running, want)
        if not granted.count:
            if allowed.idle < 0:
                # The clock was set back: from now on the bucket fills by the new one.
                limits.spend(session, cursor.queue, granted, 0)
            return _Taken(Claim(new_pass(), paused=allowed.paused), limited=cursor.limited, unknown_rank=False)
        most = most_rank(allowed.max_parallel, running, allowed.kept)
        taken = _claim(session, cursor, granted.count, worker, lease, under_limits=True, most=most)
        rows = taken.claim.rows
        limits.spend(session, cursor.queue, granted, len(rows))
        faults.reach("claim.before_commit")
    faults.reach("claim.committed")
    pace = granted.pace[: len(rows)] if granted.paced else ()
    return _Taken(Claim(taken.claim.pass_key, rows, pace), taken.limited, taken.unknown_rank)


def new_pass() -> PassKey:
    """Random, never from a sequence: a restored backup hands out the same numbers again."""
    return PassKey(uuid.uuid4())


def _claim(
    executor: Executor,
    cursor: Cursor,
    want: int,
    worker: str,
    lease: timedelta,
    *,
    under_limits: bool,
    most: Rank | None = None,
) -> _Taken:
    size = max(each for each in SIZES if each <= want)
    pass_key = new_pass()
    ranks = sorted(rank for rank in cursor.positions if most is None or rank <= most)
    # Not the names of columns: SQLAlchemy would take them for values of the update.
    parameters: dict[str, Any] = {
        "p_queue": cursor.queue,
        "p_ranks": ranks,
        "p_after": [cursor.positions[rank] for rank in ranks],
        "p_pass_key": pass_key,
        "p_lease": lease,
        "p_worker": worker,
    }
    if cursor.model.RANKED:
        parameters["p_above"], parameters["p_below"] = cursor.gaps()
    if isinstance(executor, Connection) and not under_limits:
        rows = prepared(cursor.model, cursor.lane, size).execute(executor, parameters).all()
    else:
        rows = executor.execute(claiming(cursor.model, cursor.lane, size, under_limits), parameters).all()
    first = rows[0]
    claimed = tuple(row for row in rows if row.pass_key is not None)
    claim = Claim(pass_key, claimed, paused=bool(first.queue_paused))
    return _Taken(claim, bool(first.queue_limited), first.unknown_rank is not None)
