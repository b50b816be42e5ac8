"""Working off operations: one bounded batch of one operation, the most important that is due by its rate.

Promises:
- What is done to an item and what came of it are one commit: whoever dies leaves it waiting, or done.
- Any number may work off one operation at once: an item is locked before it is done, and passed over by the others.
- The row of the operation is locked for the turn, before the items, for as long as a statement takes; and at the end,
  when everything else is done. Pausing and cancelling never wait for items, and hold from the next batch on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app import faults
from app.arrays import Array
from app.checks import limited
from app.db import autocommit, transaction
from processes.accepting import ring
from recovery.operations import acting, pacing, watching
from recovery.operations.model import ITEM, OPERATION, ItemState, OperationState
from recovery.operations.order import Kind
from recovery.operations.outcome import Acted, Task

_NOW = sa.func.clock_timestamp()
_RUNNING = OPERATION.c.state == sa.literal_column(f"'{OperationState.RUNNING}'")
_WAITING = ITEM.c.state == sa.literal_column(f"'{ItemState.WAITING}'")


@dataclass(frozen=True)
class Report:
    """Of one batch. `more`: the operation, or another one, may have another batch now."""

    operation_id: int | None = None
    done: int = 0
    failed: int = 0
    skipped: int = 0
    more: bool = False


@limited
def run_once(limit: int = pacing.BATCH) -> Report:
    """At most `limit` items. Any number may run at once."""
    with autocommit() as connection:
        turn = connection.execute(_taking_turn(), {"p_limit": limit}).one_or_none()
    if turn is None:
        return Report()
    faults.reach("operation.turn_taken")
    task = Task(turn.id, Kind(turn.kind), turn.parameters, turn.reason, turn.rate, turn.lag)
    with transaction() as session:
        items = session.execute(_taking(), {"p_id": turn.id, "p_count": turn.count}).all()
        acted = acting.act(session, task, items) if items else Acted()
        faults.reach("operation.acted")
        if acted.outcomes:
            _record(session, turn, acted)
        faults.reach("operation.before_commit")
    faults.reach("operation.committed")
    ring(sorted(acted.actors))
    counts = Counter(outcome.state for outcome in acted.outcomes.values())
    found = (counts[ItemState.DONE], counts[ItemState.FAILED], counts[ItemState.SKIPPED])
    return Report(turn.id, *found, more=bool(acted.outcomes))


@cache
def _taking_turn() -> Any:
    """Of several that are equally important, the one that has waited the longest. Its rate is kept here: whoever takes
    a turn puts the next one off, in a statement that is a transaction of its own."""
    due = sa.select(OPERATION.c.id, OPERATION.c.next_at).where(_RUNNING, OPERATION.c.next_at <= _NOW)
    first = due.order_by(OPERATION.c.priority.desc(), OPERATION.c.next_at, OPERATION.c.id).limit(1)
    chosen = first.with_for_update().cte("chosen").prefix_with("MATERIALIZED", dialect="postgresql")
    paced = sa.func.greatest(1, sa.func.floor(OPERATION.c.rate * pacing.BATCH_SECONDS))
    # A run by hand is made under the lock of its task, and tasks are locked in another order than by their names.
    most = sa.case((OPERATION.c.kind == Kind.RERUN_REACTIVE, 1), else_=sa.bindparam("p_limit", type_=sa.Integer))
    # The greatest and the least of Postgres pass over nulls.
    count = sa.cast(sa.case((OPERATION.c.rate.is_(None), most), else_=sa.func.least(most, paced)), sa.Integer)
    begins = sa.func.greatest(chosen.c.next_at, _NOW - pacing.BURST)
    takes = sa.func.make_interval(0, 0, 0, 0, 0, 0, count / OPERATION.c.rate, type_=sa.Interval)
    lag = sa.cast(sa.extract("epoch", _NOW - begins), sa.Double)
    return (
        sa.update(OPERATION)
        .where(OPERATION.c.id == chosen.c.id)
        .values(
            next_at=sa.func.coalesce(begins + takes, _NOW),
            started_at=sa.func.coalesce(OPERATION.c.started_at, _NOW),
        )
        .returning(
            *(OPERATION.c[name] for name in ("id", "kind", "parameters", "reason", "rate", "measured_from")),
            count.label("count"),
            lag.label("lag"),
        )
    )


@cache
def _taking() -> sa.Select[Any]:
    query = sa.select(ITEM.c.position, ITEM.c.process_id, ITEM.c.number, ITEM.c.subject).where(
        ITEM.c.operation_id == sa.bindparam("p_id", type_=sa.BigInteger), _WAITING
    )
    count = sa.bindparam("p_count", type_=sa.Integer)
    return query.order_by(ITEM.c.position).limit(count).with_for_update(skip_locked=True)


def _record(session: Session, turn: Row[Any], acted: Acted) -> None:
    positions = sorted(acted.outcomes)
    outcomes = [acted.outcomes[position] for position in positions]
    session.execute(
        _ending_items(),
        {
            "p_id": turn.id,
            "p_positions": positions,
            "p_states": [outcome.state.value for outcome in outcomes],
            "p_says": [outcome.says for outcome in outcomes],
        },
    )
    why = watching.why_to_stop(session, turn, positions[-1])
    acting.spread(session, acted)
    _count(session, turn.id, [outcome.state for outcome in outcomes], why)


@cache
def _ending_items() -> Any:
    arrays = [
        sa.bindparam(name, type_=Array(kind))
        for name, kind in (("p_positions", sa.BigInteger), ("p_states", sa.Text), ("p_says", sa.Text))
    ]
    columns = (sa.column("position", sa.BigInteger), sa.column("state", sa.Text), sa.column("says", sa.Text))
    ended = sa.func.unnest(*arrays).table_valued(*columns).render_derived(name="ended")
    return (
        sa.update(ITEM)
        .where(ITEM.c.operation_id == sa.bindparam("p_id", type_=sa.BigInteger), ITEM.c.position == ended.c.position)
        .values(state=sa.cast(ended.c.state, ITEM.c.state.type), outcome=ended.c.says, at=_NOW)
    )


def _count(session: Session, operation_id: int, states: Sequence[ItemState], why: str | None) -> None:
    """The last statement: who waits for the row waits for a commit. One that was cancelled meanwhile stays so."""
    counts, c = Counter(states), OPERATION.c
    more = {"done": ItemState.DONE, "failed": ItemState.FAILED, "skipped": ItemState.SKIPPED}
    over = sa.and_(_LIVE, c.done + c.failed + c.skipped + len(states) == c.total)
    stops = sa.and_(_RUNNING, sa.literal(why is not None))
    values = {name: c[name] + counts[state] for name, state in more.items()} | {
        "state": sa.case((over, OperationState.DONE), (stops, OperationState.PAUSED), else_=c.state),
        "ended_at": sa.case((over, _NOW), else_=c.ended_at),
        "why": sa.case((over, None), (stops, why), else_=c.why),
    }
    session.execute(sa.update(OPERATION).where(c.id == operation_id).values(**values))


_LIVE = OPERATION.c.ended_at.is_(None)
