"""How long work waited in its queue and took, for monitoring: counts that only grow, by bucket."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Mapped, mapped_column

from app.arrays import Array
from app.claims import Executor
from app.db import Model
from app.stopwatch import Piece, Series, stopwatch


class Timing(Model):
    """By its upper end, so that a release with other buckets goes on counting in the same rows."""

    __tablename__ = "timing"
    __table_args__ = ({"postgresql_with": {"fillfactor": 50}},)

    #: `wait` of a queue, `work` of a task.
    measure: Mapped[str] = mapped_column(primary_key=True)
    #: `job`, `run`, `visit`, `task` or `walk`.
    kind: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    #: How the work ended; empty of waiting.
    outcome: Mapped[str] = mapped_column(primary_key=True)
    #: The upper end of the bucket, in seconds.
    le: Mapped[float] = mapped_column(sa.Double, primary_key=True)
    count: Mapped[int] = mapped_column(sa.BigInteger)
    seconds: Mapped[float] = mapped_column(sa.Double)
    #: When it grew the last time.
    at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())


TIMING = cast(sa.Table, Timing.__table__)
_KEY = ("measure", "kind", "name", "outcome", "le")
_SERIES = _KEY[:-1]
_TYPES: dict[str, Any] = {
    **dict.fromkeys(_SERIES, sa.Text),
    "le": sa.Double,
    "count": sa.BigInteger,
    "seconds": sa.Double,
}


def add(executor: Executor, pieces: Sequence[Piece]) -> None:
    """In the order of the keys: two that add at once never wait for each other in a circle."""
    if not pieces:
        return
    columns = list(zip(*((*each.series, each.le, each.times, each.seconds) for each in pieces), strict=True))
    rows = (
        sa.func.unnest(
            *(sa.cast(list(column), Array(kind)) for column, kind in zip(columns, _TYPES.values(), strict=True))
        )
        .table_valued(*(sa.column(name, kind) for name, kind in _TYPES.items()))
        .render_derived(name="more")
    )
    insert = postgresql.insert(TIMING).from_select(
        list(_TYPES), sa.select(*rows.c).order_by(*(rows.c[name] for name in _KEY))
    )
    grown = {
        "count": TIMING.c.count + insert.excluded.count,
        "seconds": TIMING.c.seconds + insert.excluded.seconds,
        "at": sa.func.clock_timestamp(),
    }
    executor.execute(insert.on_conflict_do_update(index_elements=list(_KEY), set_=grown))


def hand_in(executor: Executor) -> None:
    """What was measured here, and by the children of this process. Nothing of it is lost where that fails."""
    stopwatch.collect()
    pieces = stopwatch.take()
    try:
        add(executor, pieces)
    except BaseException:
        stopwatch.put_back(pieces)
        raise


def read(executor: Executor, most: int) -> list[Piece]:
    """The first `most` buckets, by series."""
    query = sa.select(*(TIMING.c[name] for name in _TYPES)).order_by(*(TIMING.c[name] for name in _KEY)).limit(most)
    return [Piece(Series(*row[:4]), *row[4:]) for row in executor.execute(query)]


def forget(connection: Connection, older: timedelta) -> int:
    """Series of which nothing was heard for so long, as of a task that there is no more; always as a whole, or what is
    left of it would seem to have run backwards."""
    series = [TIMING.c[name] for name in _SERIES]
    silent = sa.select(*series).group_by(*series).having(sa.func.max(TIMING.c.at) < sa.func.now() - older)
    return connection.execute(sa.delete(TIMING).where(sa.tuple_(*series).in_(silent))).rowcount
