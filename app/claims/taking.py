"""Taking work: one statement where a queue has no limits; under the row lock of the queue where it has."""

from __future__ import annotations

import time
import uuid
from collections import namedtuple
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, cast

from sqlalchemy.engine import Connection, Result, Row

from app import faults, limits
from app.claims.cursor import Cursor
from app.claims.model import Executor, Lane, PassKey
from app.claims.statements import SIZES, Form, claiming, live, prepared, ranks_in_use
from app.db import autocommit, transaction
from app.ranks import Rank, most_rank
from app.stopwatch import stopwatch


@dataclass(frozen=True)
class Claim:
    """What one claim got. `pace` says how many seconds after `granted` each call may begin, where a rate rules."""

    pass_key: PassKey
    #: On the monotonic clock, before the database was asked: the lease lasts no longer than counted from here.
    asked: float
    rows: tuple[Row[Any], ...] = ()
    pace: tuple[float, ...] = ()
    paused: bool = False
    #: On the monotonic clock: when the limits of the queue were looked at.
    granted: float = 0.0
    #: The queue has rested, and this is to show whether it can go on.
    trial: bool = False


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
    if taken.claim.rows:
        name = cursor.queue if cursor.lane is Lane.MAIN else f"{cursor.queue}.{cursor.lane}"
        waits = ((row.claimed_at - row.ready).total_seconds() for row in taken.claim.rows)
        stopwatch.waited(cursor.model.NOUN, name, waits)
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
    asked = time.monotonic()
    with transaction() as session:
        allowed = limits.lock(session, cursor.queue)
        granted_at = time.monotonic()
        cursor.limited = allowed.limited
        running = 0
        if allowed.max_parallel is not None:
            running = session.execute(live(cursor.model), {"p_queue": cursor.queue}).scalar_one()
        granted = limits.grant(allowed, running, want)
        if not granted.count:
            if allowed.idle < 0:
                # The clock was set back: from now on the bucket fills by the new one.
                limits.spend(session, cursor.queue, granted, 0)
            return _Taken(Claim(new_pass(), asked, paused=allowed.paused), limited=cursor.limited, unknown_rank=False)
        most = most_rank(allowed.max_parallel, running, allowed.kept)
        taken = _claim(session, cursor, granted.count, worker, lease, under_limits=True, most=most)
        rows = taken.claim.rows
        limits.spend(session, cursor.queue, granted, len(rows))
        faults.reach("claim.before_commit")
    faults.reach("claim.committed")
    pace = granted.pace[: len(rows)] if granted.paced else ()
    claim = Claim(taken.claim.pass_key, asked, rows, pace, granted=granted_at, trial=allowed.trial)
    return _Taken(claim, taken.limited, taken.unknown_rank)


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
    pass_key, asked = new_pass(), time.monotonic()
    # Not the names of columns: SQLAlchemy would take them for values of the update.
    parameters: dict[str, Any] = {
        "p_queue": cursor.queue,
        "p_pass_key": pass_key,
        "p_lease": lease,
        "p_worker": worker,
    }
    if cursor.model.RANKED:
        ranks = sorted(rank for rank in cursor.positions if most is None or rank <= most)
        parameters |= {"p_ranks": ranks, "p_after": [cursor.positions[rank] for rank in ranks]}
        parameters["p_above"], parameters["p_below"] = cursor.gaps()
    else:
        parameters["p_after"] = cursor.positions[0]
    if cursor.shards is not None:
        parameters["p_shard"], parameters["p_last_shard"] = cursor.shards
    form = Form(cursor.lane, size, under_limits, cursor.guarded, cursor.shards is not None)
    if isinstance(executor, Connection) and not under_limits:
        rows = _plain(prepared(cursor.model, form).execute(executor, parameters))
    else:
        rows = _plain(executor.execute(claiming(cursor.model, form), parameters))
    first = rows[0]
    claimed = tuple(row for row in rows if row.ready is not None)
    claim = Claim(pass_key, asked, claimed, paused=bool(first.queue_paused), granted=asked)
    return _Taken(claim, bool(first.queue_limited), first.unknown_rank is not None)


def _plain(result: Result[Any]) -> list[Row[Any]]:
    """As named tuples, which read like rows: an attribute of a row takes ten times as long to read, and whoever works
    on one reads some dozens."""
    return cast(list[Row[Any]], list(map(_maker(tuple(result.keys())), result)))


@cache
def _maker(names: tuple[str, ...]) -> Callable[[Iterable[Any]], Any]:
    made: Any = namedtuple("Claimed", names)  # type: ignore[misc]
    return cast(Callable[[Iterable[Any]], Any], made._make)
