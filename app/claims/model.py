"""The columns that make a table claimable, and the indexes by which it is claimed."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, NewType, ParamSpec, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row
from sqlalchemy.orm import Mapped, Session, mapped_column
from sqlalchemy.sql.elements import Grouping

from app.arrays import Array

PassKey = NewType("PassKey", uuid.UUID)
Key = tuple[Any, ...]
Executor = Connection | Session


P = ParamSpec("P")
R = TypeVar("R")


def built_once(build: Callable[P, R]) -> Callable[P, R]:
    """For functions that build a statement for a model: building costs more than running it."""
    return cast(Callable[P, R], cache(build))


class Lane(enum.StrEnum):
    MAIN = "main"
    LOW = "low"


class Claimable:
    """The columns of a claim. `state` is the domain's own, in the domain's own words."""

    #: What a row is called where figures of all of them are shown together.
    NOUN: ClassVar[str] = ""
    WAITING: ClassVar[str] = "waiting"
    RUNNING: ClassVar[str] = "running"
    PARKED: ClassVar[str] = "parked"
    #: Whether `rank` is part of the index of what waits: if not, the rank of a row is ignored.
    RANKED: ClassVar[bool] = True
    #: Columns that the index of what waits carries along, to be filtered by.
    INCLUDED: ClassVar[tuple[str, ...]] = ()

    #: Of a key of several columns, the one that alone differs between the rows of a queue; None: there is none.
    VARYING: ClassVar[str | None] = None

    queue: Mapped[str]
    state: Mapped[Any]
    #: From when the row may start: asked for, or the moment it was made.
    due_at: Mapped[datetime | None] = mapped_column(server_default=sa.func.now())
    rank: Mapped[int] = mapped_column(sa.SmallInteger, server_default=sa.text("0"))
    #: Backoff: what nobody who asks for an earlier time can shorten.
    not_before: Mapped[datetime | None]
    #: Whose the row is. Set exactly while it runs.
    pass_key: Mapped[uuid.UUID | None]
    #: Until when its holder must have shown a sign of life.
    recovery_time: Mapped[datetime | None]
    attempts: Mapped[int] = mapped_column(sa.SmallInteger, server_default=sa.text("0"))
    #: It was in a batch that lost its worker: it is claimed by itself until it ends.
    alone: Mapped[bool] = mapped_column(server_default=sa.false())
    claimed_at: Mapped[datetime | None]
    claimed_by: Mapped[str | None]

    @classmethod
    def ready(cls, lane: Lane) -> sa.ColumnElement[datetime]:
        """When a waiting row may be claimed in this lane; an index carries this very expression."""
        if lane is not Lane.MAIN:
            raise ValueError(f"{cls.__name__} has no lane {lane}")
        return when(cls.due_at, cls.not_before)

    @classmethod
    def waits_in(cls, lane: Lane) -> sa.ColumnElement[bool]:  # noqa: ARG003 - one lane
        """Which rows wait in this lane; its index holds these and no others."""
        return is_waiting(cls)

    @classmethod
    def order(cls) -> tuple[Any, ...]:
        """Of rows that were ready at the same time."""
        return key_columns(cls)

    @classmethod
    def held_until(cls, lease: Any) -> Any:
        """The `recovery_time` of a new claim: not from the time of the transaction, which may have waited for the lock
        of the queue."""
        return sa.func.statement_timestamp() + lease

    @classmethod
    def returned(cls) -> list[sa.ColumnElement[Any]]:
        """What a claim tells the worker of a row."""
        return readable(table_of(cls).c)

    @classmethod
    def takeable(cls) -> sa.ColumnElement[bool]:
        """Where a claim takes more than its rows: whether the rest can be had at once."""
        raise NotImplementedError(f"{cls.__name__} has no guards")

    @classmethod
    def guarding(cls, chosen: sa.CTE) -> sa.CTE:
        """Takes it for the chosen rows (parameters `p_pass_key`, `p_lease`); returns the keys of those it got."""
        raise NotImplementedError(f"{cls.__name__} has no guards")

    @classmethod
    def abandon(cls, executor: Executor, passes: Sequence[PassKey]) -> None:
        """What these claims have taken beside their rows is free from now on: their holders are known to be dead."""

    @classmethod
    def asked_again(cls) -> sa.ColumnElement[bool] | None:
        """Whether a running row was asked for again and must survive its end; None where that cannot be."""
        return None

    @classmethod
    def released(cls) -> dict[str, Any]:
        """What else changes when a row goes back to waiting, its work not done: the domain's merge rule."""
        return {}

    @classmethod
    def renewed(cls) -> dict[str, Any]:
        """What else changes when its work is done and it was asked for again: what was asked for then is all that
        counts now."""
        return cls.released()

    @classmethod
    def exhausted(cls) -> sa.ColumnElement[bool]:
        """Whether a row that died alone has had all its attempts."""
        return sa.false()


def when(asked: Any, not_before: Any) -> sa.ColumnElement[datetime]:
    """Null where nothing is asked for: `greatest` alone would make a time out of the backoff."""
    # In parentheses, as an index wants them around an expression.
    return Grouping(sa.case((asked.is_not(None), sa.func.greatest(asked, not_before))))


def claim_indexes(model: type[Claimable], *lanes: Lane) -> None:
    """Adds the indexes by which rows are claimed, counted as running, and found overdue."""
    table = table_of(model)
    for lane in lanes:
        ranked = (model.rank,) if model.RANKED else ()
        sa.Index(
            f"{table.name}_waiting_{lane}",
            model.queue,
            *ranked,
            model.ready(lane),
            *model.order(),
            postgresql_where=model.waits_in(lane),
            postgresql_include=model.INCLUDED,
        )
    sa.Index(
        f"{table.name}_running",
        model.queue,
        model.recovery_time,
        # Of claims that end at the same moment, by thousands where workers died, it tells one from the others.
        model.pass_key,
        postgresql_where=is_running(model),
    )


def table_of(model: type[Claimable]) -> sa.Table:
    return model.__table__  # type: ignore[attr-defined, no-any-return]


def readable(columns: Any) -> list[sa.ColumnElement[Any]]:
    """Of a row that goes to a worker: JSON as the text that it is. What another program put in may be more than Python
    can read, and must fail the one row that it is in, not the claim of all."""
    return [sa.cast(column, sa.Text).label(column.name) if _is_json(column.type) else column for column in columns]


def _is_json(kind: sa.types.TypeEngine[Any]) -> bool:
    return isinstance(kind.impl if isinstance(kind, sa.TypeDecorator) else kind, sa.JSON)


@built_once
def key_columns(model: type[Claimable]) -> tuple[sa.Column[Any], ...]:
    return tuple(table_of(model).primary_key.columns)


def key_of(model: type[Claimable], row: Row[Any]) -> Key:
    return key_getter(model)(row)


@built_once
def key_getter(model: type[Claimable]) -> Callable[[Row[Any]], Key]:
    names = [column.name for column in key_columns(model)]
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda row: (get(row),)


def among(model: type[Claimable], keys: Sequence[Key]) -> sa.ColumnElement[bool]:
    """The rows with these keys, as one array a column, so that the statement does not grow with their number."""
    columns = key_columns(model)
    return _in(columns, [sa.cast([key[i] for key in keys], Array(column.type)) for i, column in enumerate(columns)])


def among_bound(model: type[Claimable]) -> sa.ColumnElement[bool]:
    """The same with parameters `key_0`…, for a statement that is built once."""
    columns = key_columns(model)
    return _in(columns, [sa.bindparam(f"key_{i}", type_=Array(column.type)) for i, column in enumerate(columns)])


def bound_keys(keys: Sequence[Key]) -> dict[str, list[Any]]:
    return {f"key_{i}": list(column) for i, column in enumerate(zip(*keys, strict=True))}


def _in(columns: tuple[sa.Column[Any], ...], arrays: Sequence[sa.ColumnElement[Any]]) -> sa.ColumnElement[bool]:
    if len(columns) == 1:
        return columns[0] == sa.any_(arrays[0])
    wanted = sa.func.unnest(*arrays).table_valued(*(column.name for column in columns)).render_derived()
    return sa.tuple_(*columns).in_(sa.select(*wanted.c))


def is_running(model: type[Claimable]) -> sa.ColumnElement[bool]:
    """As a literal: the planner matches a partial index only against what it can see."""
    return model.state == sa.literal_column(f"'{model.RUNNING}'")


def is_waiting(model: type[Claimable]) -> sa.ColumnElement[bool]:
    return model.state == sa.literal_column(f"'{model.WAITING}'")


def distinct_prefix(model: type[Claimable], condition: sa.ColumnElement[bool], *more: Any) -> sa.CTE:
    """The distinct queues (and `more` leading columns) of the rows that a partial index covers, by one index probe
    each: a plain DISTINCT would read every entry."""
    columns, one = (model.queue, *more), sa.literal_column("1", sa.Integer)
    first = sa.select(*columns).where(condition).order_by(*columns).limit(one)
    found = sa.select(first.subquery()).cte("found", recursive=True)
    following = (
        sa.select(*columns)
        .where(condition, sa.tuple_(*columns) > sa.tuple_(*(found.c[column.key] for column in columns)))
        .order_by(*columns)
        .limit(one)
        .lateral("following")
    )
    step = sa.select(*following.c).select_from(sa.join(found, following, sa.true()))
    return found.union_all(step)
