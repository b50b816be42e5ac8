"""Claims whose holder showed no sign of life in time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import CursorResult, Row

from app.claims.model import (
    Claimable,
    Executor,
    Key,
    among,
    distinct_prefix,
    is_running,
    key_columns,
    key_of,
    readable,
    table_of,
)

#: A row that died alone waits this long, doubled by each attempt, up to the most.
DELAY, DELAY_MOST = timedelta(seconds=1), timedelta(minutes=5)


def overdue(executor: Executor, model: type[Claimable], limit: int, lease: timedelta) -> list[Row[Any]]:
    """Locks and returns claims whose `recovery_time` is past, with `in_batch`: whether others were claimed with them.

    Empty for one lease after the server started: live work reports first (R6). Cost: a probe for each queue that has
    running rows, and the overdue rows.
    """
    table = table_of(model)
    queues = distinct_prefix(model, is_running(model))
    late = (
        sa.select(*readable(table.c))
        .where(model.queue == queues.c.queue, is_running(model), model.recovery_time < sa.func.now())
        .order_by(model.recovery_time)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .lateral("late")
    )
    other = table.alias("other")
    # All rows of a pass carry the same recovery_time, so the index that found one finds the others.
    in_batch = sa.exists().where(
        other.c.queue == late.c.queue,
        other.c.recovery_time == late.c.recovery_time,
        other.c.state == sa.literal_column(f"'{model.RUNNING}'"),
        other.c.pass_key == late.c.pass_key,
        sa.or_(*(other.c[c.name] != late.c[c.name] for c in key_columns(model))),
    )
    # Or since a standby took over, which may have been up for long.
    began = sa.func.greatest(sa.func.pg_postmaster_start_time(), sa.func.pg_last_xact_replay_timestamp())
    up = began < sa.func.now() - lease
    statement = (
        sa.select(late, in_batch.label("in_batch")).select_from(sa.join(queues, late, sa.true())).where(up).limit(limit)
    )
    return list(executor.execute(statement).all())


def orphan(executor: Executor, model: type[Claimable], workers: Sequence[str]) -> int:
    """Claims of workers that are known to be dead need not wait for the end of their lease."""
    holder = sa.any_(sa.cast(list(workers), ARRAY(sa.Text)))
    statement = (
        sa.update(table_of(model))
        .where(is_running(model), model.claimed_by == holder, model.recovery_time > sa.func.now())
        .values(recovery_time=sa.func.now())
    )
    return cast(CursorResult[Any], executor.execute(statement)).rowcount


def time_out(executor: Executor, model: type[Claimable], rows: Sequence[Row[Any]]) -> dict[Key, str]:
    """Ends the claims that `overdue` has locked; returns the new state of each. Those that died in a batch go back
    uncharged, to be handed out alone; those that died alone go back after a delay, or are parked when exhausted."""
    outcome: dict[Key, str] = {}
    for in_batch in (True, False):
        keys = [key_of(model, row) for row in rows if row.in_batch is in_batch]
        if not keys:
            continue
        values: dict[str, Any] = {"pass_key": None, "recovery_time": None, **model.released()}
        if in_batch:
            values |= {"state": model.WAITING, "alone": True, "attempts": sa.func.greatest(model.attempts - 1, 0)}
        else:
            state = sa.case((model.exhausted(), model.PARKED), else_=model.WAITING)
            wait = DELAY.total_seconds() * sa.func.power(2, sa.func.least(model.attempts, 10) - 1)
            seconds = sa.func.least(wait, DELAY_MOST.total_seconds())
            values |= {
                "state": sa.cast(state, table_of(model).c.state.type),
                "not_before": sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds),
            }
        statement = (
            sa.update(table_of(model))
            .where(among(model, keys))
            .values(**values)
            .returning(*key_columns(model), model.state)
        )
        outcome |= {key_of(model, row): str(row.state) for row in executor.execute(statement)}
    return outcome
