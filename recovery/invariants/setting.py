"""Small repairs: rows locked by their keys, looked at again, and set.

What somebody else holds is left to him. What the detector saw is looked at again in a statement of its own, after the
lock: its snapshot then sees all that was committed before (R7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from recovery.invariants.entry import Done, Key, Repair, by_keys


def locked(session: Session, table: sa.Table, keys: Sequence[Key]) -> list[Key]:
    columns = list(table.primary_key.columns)
    query = sa.select(*columns).where(by_keys(columns, keys)).order_by(*columns)
    return [tuple(row) for row in session.execute(query.with_for_update(skip_locked=True, of=table)).all()]


def changed(
    session: Session, table: sa.Table, keys: Sequence[Key], wrong: sa.ColumnElement[bool], values: Mapping[str, Any]
) -> list[Key]:
    """The keys of those that were still wrong."""
    if not (ours := locked(session, table, keys)):
        return []
    columns = list(table.primary_key.columns)
    update = sa.update(table).where(by_keys(columns, ours), wrong).values(**values)
    return [tuple(row) for row in session.execute(update.returning(*columns)).all()]


def setting(table: sa.Table, wrong: sa.ColumnElement[bool], values: Mapping[str, Any], action: str) -> Repair:
    def repair(session: Session, keys: Sequence[Key]) -> Done:
        found = changed(session, table, keys, wrong, values)
        return Done(dict.fromkeys(found, action))

    return repair


def removing(table: sa.Table, wrong: sa.ColumnElement[bool], action: str) -> Repair:
    def repair(session: Session, keys: Sequence[Key]) -> Done:
        if not (ours := locked(session, table, keys)):
            return Done()
        columns = list(table.primary_key.columns)
        gone = sa.delete(table).where(by_keys(columns, ours), wrong).returning(*columns)
        return Done({tuple(row): action for row in session.execute(gone).all()})

    return repair
