"""How far operations are, and what became of their items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app.db import joined
from app.errors import BadRequest, NotFound
from recovery.operations.model import ITEM, LIVE, OPERATION, ItemState, OperationState
from recovery.operations.order import Kind

LISTED_MOST = 10_000
#: Outcomes that differ further on are told as one.
OUTCOME_SHOWN = 100
OUTCOMES = 20


@dataclass(frozen=True)
class Progress:
    id: int
    kind: str
    state: OperationState
    #: What was asked for, and how.
    selection: Mapping[str, Any]
    parameters: Mapping[str, Any]
    reason: str | None
    created_by: str | None
    created_at: datetime
    #: When its first item was taken.
    started_at: datetime | None
    ended_at: datetime | None
    priority: int
    #: Items a second that are allowed; None: as many as it can.
    rate: float | None
    total: int
    done: int
    failed: int
    skipped: int
    #: Why it paused itself.
    why: str | None
    retry_of: int | None
    #: Items a second since it was started, resumed or given another rate; None: nothing was measured.
    rate_so_far: float | None

    @property
    def ended(self) -> int:
        """Items."""
        return self.done + self.failed + self.skipped

    @property
    def percent(self) -> float:
        return 100.0 * self.ended / max(1, self.total)

    @property
    def left(self) -> timedelta | None:
        """None: nobody knows, or it does not go on."""
        rate = self.rate_so_far or self.rate
        if self.state is not OperationState.RUNNING or not rate:
            return None
        return timedelta(seconds=min((self.total - self.ended) / rate, timedelta.max.total_seconds() / 2))


@dataclass(frozen=True)
class ItemShown:
    position: int
    process_id: int | None
    number: int | None
    subject: tuple[str, ...] | None
    state: ItemState
    outcome: str | None
    at: datetime | None


@dataclass(frozen=True)
class Outcomes:
    """Items that came to the same; `outcome`: how it begins."""

    state: ItemState
    outcome: str
    count: int


def show(operation_id: int, *, session: Session | None = None) -> Progress:
    with joined(session) as tx:
        row = tx.execute(_seen().where(OPERATION.c.id == checked(operation_id))).one_or_none()
    if row is None:
        raise missing(operation_id)
    return _progress(row)


def overview(
    limit: int = 50,
    *,
    live: bool = False,
    kind: Kind | None = None,
    before: int | None = None,
    session: Session | None = None,
) -> list[Progress]:
    """The latest first. `live`: only those that have not ended; `before`: older than this one."""
    query = _seen().order_by(OPERATION.c.id.desc()).limit(_limit(limit))
    query = query.where(LIVE) if live else query
    query = query if kind is None else query.where(OPERATION.c.kind == kind.value)
    query = query if before is None else query.where(OPERATION.c.id < checked(before))
    with joined(session) as tx:
        return [_progress(row) for row in tx.execute(query)]


def late(session: Session) -> timedelta | None:
    """For how long the one whose turn is next has waited for it; None: none is due."""
    running = OPERATION.c.state == sa.literal_column(f"'{OperationState.RUNNING}'")
    now = sa.func.clock_timestamp()
    waited = sa.select(sa.type_coerce(now - OPERATION.c.next_at, sa.Interval)).where(
        running, OPERATION.c.next_at <= now
    )
    order = (OPERATION.c.priority.desc(), OPERATION.c.next_at, OPERATION.c.id)
    return session.execute(waited.order_by(*order).limit(1)).scalar_one_or_none()


def items(
    operation_id: int,
    *,
    states: Iterable[ItemState] = (),
    limit: int = 100,
    after: int = 0,
    session: Session | None = None,
) -> list[ItemShown]:
    """In their order, behind position `after`."""
    wanted = [ItemState(each) for each in states]
    of = (ITEM.c.operation_id == checked(operation_id), ITEM.c.position > after)
    query = sa.select(*(ITEM.c[name] for name in ItemShown.__dataclass_fields__)).where(*of)
    query = query.where(ITEM.c.state.in_(wanted)) if wanted else query
    with joined(session) as tx:
        rows = tx.execute(query.order_by(ITEM.c.position).limit(_limit(limit))).all()
    return [ItemShown(**(dict(row._mapping) | {"subject": row.subject and tuple(row.subject)})) for row in rows]


def outcomes(operation_id: int, *, session: Session | None = None) -> list[Outcomes]:
    """The most frequent first."""
    text = sa.func.left(sa.func.coalesce(ITEM.c.outcome, ""), OUTCOME_SHOWN).label("text")
    count = sa.func.count().label("items")
    query = (
        sa.select(ITEM.c.state, text, count)
        .where(ITEM.c.operation_id == checked(operation_id), ITEM.c.state != ItemState.WAITING)
        .group_by(ITEM.c.state, text)
        .order_by(count.desc(), ITEM.c.state, text)
        .limit(OUTCOMES)
    )
    with joined(session) as tx:
        return [Outcomes(ItemState(row.state), row.text, row.items) for row in tx.execute(query)]


def checked(operation_id: int) -> int:
    if type(operation_id) is not int or not 0 < operation_id < 2**63:
        raise BadRequest(f"{operation_id!r:.100} is not the id of an operation, which is a whole number from 1")
    return operation_id


def missing(operation_id: int) -> NotFound:
    return NotFound(
        f"there is no operation {operation_id}: 'tidemill recover operation list' shows those that there are"
    )


def _limit(limit: int) -> int:
    if type(limit) is not int or not 1 <= limit <= LISTED_MOST:
        raise BadRequest(f"limit={limit!r:.100} must be a whole number from 1 to {LISTED_MOST}")
    return limit


def _seen() -> sa.Select[Any]:
    until = sa.func.coalesce(OPERATION.c.ended_at, sa.func.clock_timestamp())
    spent = sa.cast(sa.extract("epoch", until - OPERATION.c.measured_from), sa.Double)
    return sa.select(*OPERATION.c, spent.label("spent"))


def _progress(row: Row[Any]) -> Progress:
    made = row.done + row.failed + row.skipped - row.ended_before
    counted = row.state != OperationState.PAUSED and row.spent > 0 and made > 0
    own = {name: row._mapping[name] for name in Progress.__dataclass_fields__ if name != "rate_so_far"}
    own["state"] = OperationState(row.state)
    return Progress(**own, rate_so_far=made / row.spent if counted else None)
