"""How far the service has followed the two streams, and what is new in them (T19).

Promises:
- New is what was not visible in the stored snapshot and is visible now: no order of commits can hide a change. The rows
  and the snapshot that replaces the stored one come from one statement.
- The row is locked before the streams are read. Its `term` says whose turn it is: a service that was frozen while
  another took over finds another term, and must not go on.
- The streams say only what has to be read again, never what it is: a change that is handled twice does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from app.claims import Executor
from app.stream import FIRST_XID, Snapshot, TransactionId, ahead, cluster, end, new_in
from triggers.ctl import Parameter
from triggers.instants import Instant
from triggers.model import Ctl, CtlChange, ReactiveCursor, ReactiveEvent
from triggers.polling import micros

#: More that moved at once is not followed any more, but read anew as a whole.
LIMIT = 20_000
#: As a session that holds duties may be silent (`app.duties`).
FROZEN_SECONDS = 10


@dataclass
class Changes:
    """`parameters` with their current values, `tasks` to be read again, and the moment of the database's clock."""

    now: Instant = 0
    snapshot: str = ""
    parameters: dict[Parameter, Instant | None] = field(default_factory=dict)
    tasks: set[str] = field(default_factory=set)

    @property
    def any(self) -> bool:
        return bool(self.parameters or self.tasks)

    @property
    def too_many(self) -> bool:
        return max(len(self.parameters), len(self.tasks)) >= LIMIT


def take_over(session: Session) -> int:
    """From now on the streams are followed from here; returns the new term. To be called before anything is read, in
    a transaction that sees one snapshot throughout. Whoever has the row for long is not waited for."""
    session.execute(sa.select(_end_when_frozen(), sa.func.set_config("lock_timeout", "1s", True)))
    here = {"snapshot": sa.func.pg_current_snapshot(), "cluster": cluster(), "moved_at": sa.func.clock_timestamp()}
    anew = {"term": ReactiveCursor.term + 1, "compared_at": None, "differences": 0}
    insert = postgresql.insert(ReactiveCursor).values(id=1, term=1, **here)
    next_term = insert.on_conflict_do_update(index_elements=["id"], set_=here | anew)
    term = int(session.execute(next_term.returning(ReactiveCursor.term)).scalar_one())
    # Rows that were restored from another cluster may have numbers that this one has not come to: without this they
    # would be new for ever.
    for each in (CtlChange, ReactiveEvent):
        to_come = each.xid >= end(sa.func.pg_current_snapshot())
        session.execute(sa.update(each).where(to_come).values(xid=sa.cast(FIRST_XID, TransactionId)))
    return term


def turn(session: Session) -> tuple[int, Instant]:
    """Whose it is, and the moment."""
    row = session.execute(sa.select(ReactiveCursor.term, micros(sa.func.clock_timestamp()))).one_or_none()
    return (0, 0) if row is None else (row[0], row[1])


def lock(session: Session) -> Any:
    """None where there is none yet. `usable`: it speaks of transactions of this cluster, and of none to come."""
    found: Any = session.execute(_LOCKING).one_or_none()
    return found


def _end_when_frozen() -> sa.ColumnElement[str]:
    """What is frozen within a transaction keeps its locks: the server ends it, as it ends the session of its duties."""
    seconds = sa.bindparam(None, callable_=lambda: f"{FROZEN_SECONDS}s", type_=sa.Text)
    return sa.func.set_config("idle_in_transaction_session_timeout", seconds, True)


_LOCKING = sa.select(
    sa.cast(ReactiveCursor.snapshot, sa.Text).label("snapshot"),
    ReactiveCursor.term,
    sa.and_(ReactiveCursor.cluster == cluster(), ~ahead(ReactiveCursor.snapshot)).label("usable"),
    _end_when_frozen(),
).with_for_update()


def move(session: Session, changes: Changes) -> None:
    to = sa.cast(changes.snapshot, Snapshot)
    session.execute(sa.update(ReactiveCursor).values(snapshot=to, moved_at=sa.func.clock_timestamp()))


def read(session: Session, snapshot: str) -> Changes:
    changes = Changes()
    for kind, first, second, number in session.execute(_reading(), {"snapshot": snapshot, "most": LIMIT}):
        match kind:
            case "parameter":
                changes.parameters[(first, second)] = number
            case "task":
                changes.tasks.add(first)
            case _:
                changes.snapshot, changes.now = first, number
    return changes


def clock(session: Session) -> Instant:
    return session.execute(sa.select(micros(sa.func.clock_timestamp()))).scalar_one()


def anything_new(executor: Executor, term: int, timer: Instant | None) -> bool:
    """Whether a pass is worth its locks, a timer has come, or it is not our turn any more: asked without locks, and
    without writing anything."""
    new, turn, now = executor.execute(_peeking()).one()
    return bool(new) or turn != term or (timer is not None and now >= timer)


@cache
def _reading() -> Any:
    before = sa.cast(sa.bindparam("snapshot", type_=sa.Text), Snapshot)
    most = sa.bindparam("most", type_=sa.Integer)
    moved = sa.union(*new_in(before, CtlChange, CtlChange.entity, CtlChange.parameter)).limit(most).subquery("moved")
    events = sa.union(*new_in(before, ReactiveEvent, ReactiveEvent.task)).limit(most).subquery("events")
    # For each by index: a join would read all values there are, as the planner cannot know how few have moved.
    named = sa.and_(Ctl.entity == moved.c.entity, Ctl.parameter == moved.c.parameter)
    value = sa.select(micros(Ctl.value)).where(named).scalar_subquery()
    nothing = sa.cast(None, sa.Text)
    return sa.union_all(
        sa.select(sa.literal("parameter"), moved.c.entity, moved.c.parameter, value),
        sa.select(sa.literal("task"), events.c.task, nothing, sa.cast(None, sa.BigInteger)),
        sa.select(
            sa.literal("mark"),
            sa.cast(sa.func.pg_current_snapshot(), sa.Text),
            nothing,
            micros(sa.func.clock_timestamp()),
        ),
    )


@cache
def _peeking() -> Any:
    # As a scalar subquery, which is evaluated once: an index range wants a value to compare with.
    before = sa.select(ReactiveCursor.snapshot).scalar_subquery()
    # Not by EXISTS, which the planner answers by reading the table until it meets one: here that is to its end.
    first = [
        each.order_by(stream.xid).limit(sa.literal_column("1")).scalar_subquery()
        for stream in (CtlChange, ReactiveEvent)
        for each in new_in(before, stream, stream.xid)
    ]
    term = sa.select(ReactiveCursor.term).scalar_subquery()
    new = sa.or_(ahead(before), *(each.is_not(None) for each in first))
    return sa.select(new, term, micros(sa.func.clock_timestamp()))
