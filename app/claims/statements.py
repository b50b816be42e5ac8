"""The statements of a claim, built once for a model.

One statement finds the best rows, marks them ours, and says what the worker must know about the queue. LIMIT is a
literal: under a generic plan a parameter there gave a sequential scan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP

from app.arrays import Array
from app.claims.cursor import AFTER_ALL
from app.claims.model import (
    Claimable,
    Lane,
    built_once,
    distinct_prefix,
    is_running,
    key_columns,
    table_of,
)
from app.limits import Queue
from app.prepared import Prepared

#: Batches come in these sizes, so that few statements serve all.
SIZES = (1, 3, 10, 30, 100, 250, 500)


@built_once
def live(model: type[Claimable]) -> sa.Select[int]:
    return sa.select(sa.func.count(sa.distinct(model.pass_key))).where(
        model.queue == sa.bindparam("p_queue"), is_running(model)
    )


@built_once
def ranks_in_use(model: type[Claimable]) -> sa.Select[int]:
    waiting = model.waits_in(Lane.MAIN) & (model.queue == sa.bindparam("p_queue"))
    found = distinct_prefix(model, waiting, model.rank)
    return sa.select(found.c.rank)


@dataclass(frozen=True)
class Form:
    """What makes one statement of a claim another than the next."""

    lane: Lane = Lane.MAIN
    size: int = 1
    under_limits: bool = False
    #: Takes the guards of what it claims, and leaves out what is guarded.
    guarded: bool = False
    #: Only within a range of shards.
    sharded: bool = False

    @property
    def name(self) -> str:
        marks = "_guarded" * self.guarded + "_sharded" * self.sharded
        return f"{self.lane}_{self.size}{marks}"


@built_once
def prepared(model: type[Claimable], form: Form) -> Prepared:
    return Prepared(f"claim_{table_of(model).name}_{form.name}", claiming(model, form), by_index=True)


@built_once
def claiming(model: type[Claimable], form: Form) -> sa.Select[Any]:
    """Always a row: whether the queue is paused, has limits, holds a rank that the cursor does not know; and what was
    claimed, or nulls."""
    want = sa.literal_column(str(form.size), sa.Integer)
    queue = sa.bindparam("p_queue", type_=sa.Text)
    limited = sa.or_(Queue.max_parallel.is_not(None), Queue.rate.is_not(None), Queue.rests_why.is_not(None))
    settings = sa.select(Queue.paused, limited.label("limited")).where(Queue.name == queue).cte("settings")
    shut = settings.c.paused if form.under_limits else sa.or_(settings.c.paused, settings.c.limited)
    unknown = _unknown(model, queue)
    best = _best(model, form, queue, want, unknown)
    picked = (
        sa.select(*best.c)
        .where(~sa.exists().where(shut).select_from(settings))
        .limit(want)
        .cte("picked")
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )
    chosen = _together(model, picked)
    table = table_of(model)
    # What has taken its guards says so by the key: joining it with what was chosen would compare each with each.
    taken = model.guarding(chosen) if form.guarded else chosen
    claimed = (
        sa.update(table)
        .where(*_of(model, taken))
        .values(
            state=model.RUNNING,
            pass_key=sa.bindparam("p_pass_key", type_=sa.Uuid),
            recovery_time=model.held_until(sa.bindparam("p_lease", type_=sa.Interval)),
            # A job that is tried for ever must not stop the whole queue by an overflow.
            attempts=sa.func.least(table.c.attempts, 32766) + 1,
            claimed_at=sa.func.statement_timestamp(),
            claimed_by=sa.bindparam("p_worker", type_=sa.Text),
        )
        .returning(*model.returned(), model.ready(form.lane).label("ready"))
        .cte("claimed")
    )
    return (
        sa.select(
            settings.c.paused.label("queue_paused"),
            settings.c.limited.label("queue_limited"),
            unknown.c.rank.label("unknown_rank"),
            *claimed.c,
        )
        .select_from(unknown.outerjoin(settings, sa.true()).outerjoin(claimed, sa.true()))
        .order_by(*_order(model, claimed))
    )


def _of(model: type[Claimable], taken: sa.CTE) -> list[sa.ColumnElement[bool]]:
    """The rows that were taken, as a list: a join of two that are thought to be one row each, as where the statistics
    say that the queue is empty, may begin with the whole table."""
    columns = key_columns(model)
    varying = columns[0].name if len(columns) == 1 else model.VARYING
    if varying is None:
        return [column == taken.c[column.name] for column in columns]
    listed = sa.func.array(sa.select(taken.c[varying]).scalar_subquery(), type_=ARRAY(table_of(model).c[varying].type))
    same = [each for each in columns if each.name != varying]
    return [
        *(column == sa.select(taken.c[column.name]).limit(1).scalar_subquery() for column in same),
        table_of(model).c[varying] == sa.any_(listed),
    ]


def _unknown(model: type[Claimable], queue: Any) -> sa.CTE:
    """The best rank that waits and that the cursor does not know, or null: an empty index range for each gap."""
    if not model.RANKED:
        return sa.select(sa.cast(None, sa.SmallInteger).label("rank")).cte("unknown")
    table = table_of(model)
    gaps = (
        sa.func.unnest(
            sa.bindparam("p_above", type_=Array(sa.Integer)), sa.bindparam("p_below", type_=Array(sa.Integer))
        )
        .table_valued(sa.column("above", sa.Integer), sa.column("below", sa.Integer))
        .render_derived(name="gaps")
    )
    within = (
        sa.select(table.c.rank)
        .where(
            *(table.c.queue == queue, model.waits_in(Lane.MAIN)),
            *(table.c.rank > gaps.c.above, table.c.rank < gaps.c.below),
        )
        .order_by(table.c.rank)
        .limit(1)
        .lateral("within")
    )
    first = sa.select(sa.func.min(within.c.rank).label("rank")).select_from(gaps.join(within, sa.true()))
    return first.cte("unknown").prefix_with("MATERIALIZED", dialect="postgresql")


def _best(model: type[Claimable], form: Form, queue: Any, want: Any, unknown: sa.CTE) -> sa.Subquery:
    """The first rows; of a ranked model those of each rank, rank by rank, up to the first unknown; lazily, so that no
    more are locked than are taken."""
    if not model.RANKED:
        # Not as a single rank of a list: how long that is a plan for all parameters cannot know, so the server would
        # make a plan of its own for each claim, which takes a third of it.
        after = sa.bindparam("p_after", type_=TIMESTAMP(timezone=True))
        return _first(model, form, queue, want, after).subquery("best")
    ranks = (
        sa.func.unnest(
            sa.bindparam("p_ranks", type_=Array(sa.SmallInteger)),
            sa.bindparam("p_after", type_=Array(TIMESTAMP(timezone=True))),
        )
        .table_valued(sa.column("rank", sa.SmallInteger), sa.column("after", TIMESTAMP(timezone=True)))
        .render_derived(name="ranks")
    )
    of_rank = _first(model, form, queue, want, ranks.c.after).where(table_of(model).c.rank == ranks.c.rank)
    first = of_rank.lateral("of_rank")
    known = ranks.c.rank < sa.func.coalesce(sa.select(unknown.c.rank).scalar_subquery(), AFTER_ALL)
    return sa.select(*first.c).select_from(ranks.join(first, sa.true())).where(known).subquery("best")


def _first(model: type[Claimable], form: Form, queue: Any, want: Any, after: Any) -> sa.Select[Any]:
    table, ready, key = table_of(model), model.ready(form.lane), key_columns(model)
    begin = sa.func.coalesce(after, sa.literal_column("'-infinity'::timestamptz"))
    first = (
        sa.select(*key, table.c.rank, table.c.alone, ready.label("ready"))
        .where(table.c.queue == queue, model.waits_in(form.lane), ready >= begin, ready <= sa.func.now())
        .order_by(ready, *model.order())
        .limit(want)
        .with_for_update(skip_locked=True)
    )
    if form.guarded:
        first = first.where(model.takeable())
    if form.sharded:
        first = first.where(table.c.shard.between(sa.bindparam("p_shard"), sa.bindparam("p_last_shard")))
    return first


def _order(model: type[Claimable], rows: sa.CTE) -> list[sa.ColumnElement[Any]]:
    """Best first."""
    ranked = [rows.c.rank] if model.RANKED else []
    return [*ranked, rows.c.ready, *(rows.c[column.name] for column in model.order())]


def _together(model: type[Claimable], picked: sa.CTE) -> sa.CTE:
    """A row that is to be alone is taken alone, and only when it is the first."""
    order = _order(model, picked)
    ranked = sa.select(
        *picked.c,
        sa.func.row_number().over(order_by=order).label("place"),
        sa.func.first_value(picked.c.alone).over(order_by=order).label("first_alone"),
    ).subquery("ranked")
    together = sa.or_(
        sa.and_(ranked.c.first_alone, ranked.c.place == 1), sa.and_(~ranked.c.first_alone, ~ranked.c.alone)
    )
    return sa.select(*ranked.c).where(together).cte("chosen")
