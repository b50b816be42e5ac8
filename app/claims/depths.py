"""How deep the queues of a table are: a probe for each queue, and ranges of indexes in bounds.

What there are millions of is counted up to `most`, of each rank: so it costs the same however much waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from app.claims.model import Claimable, Lane, built_once, distinct_prefix, is_running, table_of


@built_once
def waiting(model: type[Claimable], lane: Lane, most: int) -> sa.Select[Any]:
    """By queue: `ready`, `later`, and for how long the first has been ready, `oldest`. An index holds the ready and the
    later ones of a rank in the order of their times."""
    table, ready, now = table_of(model), model.ready(lane), sa.func.now()
    groups = distinct_prefix(model, model.waits_in(lane), *((model.rank,) if model.RANKED else ()))

    def of_group(*columns: Any) -> Any:
        found = sa.select(*columns).where(table.c.queue == groups.c.queue, model.waits_in(lane)).order_by(ready)
        return found.where(table.c.rank == groups.c.rank) if model.RANKED else found

    def count(condition: Any) -> Any:
        rows = of_group(sa.literal(1)).where(condition).limit(most).correlate(groups).subquery()
        return sa.select(sa.func.count()).select_from(rows).scalar_subquery()

    first = of_group(ready).where(ready <= now).limit(1).correlate(groups).scalar_subquery()
    each = sa.select(
        groups.c.queue,
        count(ready <= now).label("ready"),
        count(ready > now).label("later"),
        sa.type_coerce(now - first, sa.Interval).label("oldest"),
    ).subquery("each")
    return (
        sa.select(
            each.c.queue,
            sa.func.sum(each.c.ready).label("ready"),
            sa.func.sum(each.c.later).label("later"),
            sa.func.max(each.c.oldest).label("oldest"),
        )
        .group_by(each.c.queue)
        .order_by(each.c.queue)
    )


def marked(model: type[Claimable], most: int) -> Iterator[tuple[str, sa.Select[Any]]]:
    """Queue and count of what is `running`, and `parked` where that can be."""
    yield "running", _marked(model, "running", is_running(model), most)
    # Where nothing is ever parked there is no index of it either.
    if any(index.name == f"{table_of(model).name}_parked" for index in table_of(model).indexes):
        yield "parked", _marked(model, "parked", model.state == sa.literal_column(f"'{model.PARKED}'"), most)


def _marked(model: type[Claimable], state: str, condition: Any, most: int) -> sa.Select[Any]:
    table = table_of(model)
    index = next(index for index in table.indexes if index.name == f"{table.name}_{state}")
    groups = distinct_prefix(model, condition)
    # In the order of the index, so that nothing else is read.
    order = [each for each in index.expressions if getattr(each, "name", None) != "queue"]
    rows = sa.select(sa.literal(1)).where(table.c.queue == groups.c.queue, condition).order_by(*order).limit(most)
    count = sa.select(sa.func.count()).select_from(rows.correlate(groups).subquery()).scalar_subquery()
    return sa.select(groups.c.queue, count).order_by(groups.c.queue)
