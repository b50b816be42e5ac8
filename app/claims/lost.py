"""Claims whose holder showed no sign of life in time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app.arrays import Array
from app.claims import storm
from app.claims.model import (
    Claimable,
    Executor,
    Key,
    PassKey,
    built_once,
    distinct_prefix,
    is_running,
    key_columns,
    key_of,
    readable,
    table_of,
)

#: A row that died alone waits this long, doubled by each attempt, up to the most.
DELAY, DELAY_MOST = timedelta(seconds=1), timedelta(minutes=5)


def overdue(
    executor: Executor, model: type[Claimable], limit: int, lease: timedelta, *, lock: bool = True
) -> list[Row[Any]]:
    """Locks and returns claims whose `recovery_time` is past, with `in_batch`: whether others were claimed with them.
    `lock=False` where something else is to be locked first: no more than their keys, with the same.

    Empty for one lease after the server started: live work reports first (R6). Cost: a probe for each queue that has
    running rows, and the overdue rows.
    """
    return list(executor.execute(finding_overdue(model, limit, lock=lock), {"p_lease": lease}).all())


@built_once
def finding_overdue(model: type[Claimable], limit: int, *, lock: bool) -> sa.Select[Any]:
    """What `overdue` asks; for a statement that goes on with it. Parameter: `p_lease`."""
    table = table_of(model)
    queues = distinct_prefix(model, is_running(model))
    # As a literal: a generic plan would take a parameter for a tenth of all, and read the table.
    most = sa.literal_column(str(limit), sa.Integer)
    found = (
        sa.select(*readable(table.c))
        .where(model.queue == queues.c.queue, is_running(model), model.recovery_time < sa.func.now())
        .order_by(model.recovery_time)
        .limit(most)
        .correlate(queues)
    )
    late, other = _late(found, lock=lock), table.alias("other")
    # All rows of a pass carry the same recovery_time, so the index that found one finds the others; by their pass,
    # since the claims of workers that are known to be dead all end at one moment.
    outside = sa.exists().where(
        other.c.queue == late.c.queue,
        other.c.recovery_time == late.c.recovery_time,
        other.c.state == sa.literal_column(f"'{model.RUNNING}'"),
        other.c.pass_key == late.c.pass_key,
        sa.or_(*(other.c[c.name] != late.c[c.name] for c in key_columns(model))),
    )
    in_batch = sa.or_(late.c.together, outside)
    told = table.c if lock else key_columns(model)
    columns = (late.c[each.name] for each in told)
    query = sa.select(*columns, in_batch.label("in_batch")).select_from(sa.join(queues, late, sa.true()))
    return query.where(up_for_a_lease()).limit(most)


def up_for_a_lease() -> sa.ColumnElement[bool]:
    """Live work reports first (R6): after a start of the server, or since a standby took over, which may have been up
    for long. Parameter: `p_lease`."""
    began = sa.func.greatest(sa.func.pg_postmaster_start_time(), sa.func.pg_last_xact_replay_timestamp())
    return began < sa.func.now() - sa.cast(sa.bindparam("p_lease", type_=sa.Interval), sa.Interval)


def _late(found: sa.Select[Any], *, lock: bool) -> Any:
    """`together`: others of its pass are among them."""
    if lock:
        # Each is handed on as it is found, so that no more are locked than are taken.
        return found.add_columns(sa.false().label("together")).with_for_update(skip_locked=True).lateral("late")
    taken = found.lateral("taken")
    of_pass = sa.func.count().over(partition_by=taken.c.pass_key)
    return sa.select(*taken.c, (of_pass > sa.literal_column("1", sa.Integer)).label("together")).lateral("late")


def orphan(session: Session, model: type[Claimable], workers: Sequence[str]) -> int:
    """Claims of workers that are known to be dead need not wait for the end of their lease; but those whose rows
    somebody holds just now do. In one transaction: a sweep in between would take what is left for a sign of life."""
    table, columns = table_of(model), key_columns(model)
    holder = sa.any_(sa.cast(list(workers), Array(sa.Text)))
    free = (
        sa.select(*columns)
        .where(is_running(model), model.claimed_by == holder, model.recovery_time > sa.func.now())
        .order_by(*columns)
        .with_for_update(skip_locked=True)
        .cte("free")
    )
    statement = (
        sa.update(table)
        .where(*(column == free.c[column.name] for column in columns))
        .values(recovery_time=sa.func.now())
        .returning(model.pass_key)
    )
    passes = [PassKey(each) for each in session.execute(statement).scalars() if each is not None]
    if passes:
        model.abandon(session, sorted(set(passes)))
    return len(passes)


def time_out(executor: Executor, model: type[Claimable], rows: Sequence[Row[Any]]) -> dict[Key, str]:
    """Ends the claims that `overdue` has locked; returns the new state of each. Those that died in a batch go back
    uncharged, to be handed out alone; those that died alone go back after a delay, or are parked when exhausted. All
    of them in their turn (R11)."""
    outcome: dict[Key, str] = {}
    turns = storm.delays(executor, [row.queue for row in rows])
    for in_batch in (True, False):
        ours = [(*key_of(model, row), turn) for row, turn in zip(rows, turns, strict=True) if row.in_batch is in_batch]
        if ours:
            ended = executor.execute(_ending(model, ours, in_batch=in_batch))
            outcome |= {key_of(model, row): str(row.state) for row in ended}
    return outcome


def _ending(model: type[Claimable], rows: Sequence[tuple[Any, ...]], *, in_batch: bool) -> Any:
    """`rows`: their keys, and in how many seconds it is their turn."""
    table, columns = table_of(model), key_columns(model)
    named = [*(sa.column(each.name, each.type) for each in columns), sa.column("turn", sa.Double)]
    arrays = [sa.cast([row[i] for row in rows], Array(each.type)) for i, each in enumerate(named)]
    ours = sa.func.unnest(*arrays).table_valued(*named).render_derived(name="ours")
    values: dict[str, Any] = {"pass_key": None, "recovery_time": None, **model.released()}
    turn = sa.case((ours.c.turn > 0, sa.func.now() + _span(ours.c.turn)))
    if in_batch:
        values |= {"state": model.WAITING, "alone": True, "attempts": sa.func.greatest(model.attempts - 1, 0)}
        values["not_before"] = sa.func.greatest(model.not_before, turn)
    else:
        state = sa.case((model.exhausted(), model.PARKED), else_=model.WAITING)
        wait = DELAY.total_seconds() * sa.func.power(2, sa.func.least(model.attempts, 10) - 1)
        # Turn after backoff: whose turn is shorter than their backoff would all start at its end.
        values["not_before"] = sa.func.now() + _span(sa.func.least(wait, DELAY_MOST.total_seconds()) + ours.c.turn)
        values["state"] = sa.cast(state, table.c.state.type)
    return (
        sa.update(table)
        .where(*(column == ours.c[column.name] for column in columns))
        .values(**values)
        .returning(*columns, model.state)
    )


def _span(seconds: Any) -> Any:
    return sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds)
