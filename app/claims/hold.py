"""Keeping, ending and giving back what a claim holds. Each returns the keys that were still ours: the rest is lost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row

from app.claims.model import (
    Claimable,
    Executor,
    Key,
    PassKey,
    among,
    among_bound,
    bound_keys,
    built_once,
    key_columns,
    key_of,
    table_of,
)


def _change(
    executor: Executor, model: type[Claimable], pass_key: PassKey, keys: Sequence[Key], values: dict[str, Any]
) -> set[Key]:
    statement = (
        sa.update(table_of(model))
        .where(among(model, keys), model.pass_key == pass_key)
        .values(**values)
        .returning(*key_columns(model))
    )
    return {key_of(model, row) for row in executor.execute(statement)}


def extend(
    executor: Executor, model: type[Claimable], pass_key: PassKey, keys: Sequence[Key], lease: timedelta
) -> set[Key]:
    """Moves `recovery_time` on, but of those that a stranger has locked just now: one of them must not cost the others
    their claim."""
    table, columns = table_of(model), key_columns(model)
    held = sa.select(*columns).where(among(model, keys), model.pass_key == pass_key)
    ours = held.cte("ours").prefix_with("MATERIALIZED", dialect="postgresql")
    free = held.order_by(*columns).with_for_update(skip_locked=True).cte("free")
    moved = (
        sa.update(table)
        .where(*(column == free.c[column.name] for column in columns))
        .values(recovery_time=sa.func.now() + lease)
        .cte("moved")
    )
    return {key_of(model, row) for row in executor.execute(sa.select(*ours.c).add_cte(moved))}


@built_once
def finishing(model: type[Claimable]) -> Any:
    """The end of work as a statement that returns the ended rows, for the domain to join with what it writes then.
    Parameters: `pass_key`, and the keys as `bound_keys` gives them."""
    mine = model.pass_key == sa.bindparam("pass_key", type_=sa.Uuid)
    return sa.delete(table_of(model)).where(among_bound(model), mine).returning(table_of(model))


def finish(executor: Executor, model: type[Claimable], pass_key: PassKey, keys: Sequence[Key]) -> list[Row[Any]]:
    """Deletes the rows, except those asked for again meanwhile (`asked_again`): these wait anew, with clean attempts.
    Returns all that were ours."""
    again = model.asked_again()
    kept: list[Row[Any]] = []
    if again is not None:
        statement = (
            sa.update(table_of(model))
            .where(among(model, keys), model.pass_key == pass_key, again)
            .values(state=model.WAITING, pass_key=None, recovery_time=None, attempts=0, alone=False, **model.renewed())
            .returning(table_of(model))
        )
        kept = list(executor.execute(statement).all())
    return kept + list(executor.execute(finishing(model), {"pass_key": pass_key, **bound_keys(keys)}).all())


def give_back(
    executor: Executor,
    model: type[Claimable],
    pass_key: PassKey,
    keys: Sequence[Key],
    *,
    charged: bool,
    delay: timedelta | None = None,
    alone: bool = False,
    **more: Any,
) -> set[Key]:
    """Back to waiting: `charged` if an attempt was made, after `delay` if it is to back off."""
    values = {"state": model.WAITING, "pass_key": None, "recovery_time": None, **model.released(), **more}
    if not charged:
        values["attempts"] = sa.func.greatest(model.attempts - 1, 0)
    if delay is not None:
        values["not_before"] = sa.func.clock_timestamp() + delay
    if alone:
        values["alone"] = True
    return _change(executor, model, pass_key, keys, values)


def park(executor: Executor, model: type[Claimable], pass_key: PassKey, keys: Sequence[Key], **more: Any) -> set[Key]:
    """Out of the way until an operator says otherwise."""
    return _change(
        executor, model, pass_key, keys, {"state": model.PARKED, "pass_key": None, "recovery_time": None, **more}
    )
