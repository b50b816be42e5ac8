"""Following an append-only table: what was not visible in a snapshot, and is now.

No order of commits hides a row from this, and no writer that stays open stalls it. A row carries the number of its
transaction in a column `xid`, with an index.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import UserDefinedType


class TransactionId(UserDefinedType[str]):
    """Postgres' `xid8`, which never wraps around."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "xid8"


class Snapshot(UserDefinedType[str]):
    """Postgres' `pg_snapshot`: which transactions were visible."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "pg_snapshot"


#: The first number that a transaction of a cluster has, long ago for all of them.
FIRST_XID = "3"


def end(snapshot: Any) -> sa.ColumnElement[Any]:
    """The first transaction that had not begun."""
    return sa.func.pg_snapshot_xmax(snapshot, type_=TransactionId)


def ahead(snapshot: Any) -> sa.ColumnElement[bool]:
    """It knows of transactions that have not been: those that will have their numbers would not be new to it."""
    return end(snapshot) > end(sa.func.pg_current_snapshot())


def cluster() -> Any:
    """Whose transactions these numbers count: after a dump was restored elsewhere, they mean nothing."""
    control = sa.func.pg_control_system().table_valued(sa.column("system_identifier", sa.BigInteger))
    return sa.select(control.c.system_identifier).scalar_subquery()


def new_in(before: Any, stream: Any, *columns: Any) -> list[sa.Select[Any]]:
    """Two index ranges: what had not begun when the snapshot was taken, and what was under way. Never also by `id`:
    that is drawn before the transaction has its number."""
    begun = sa.select(sa.func.pg_snapshot_xip(before, type_=TransactionId)).scalar_subquery()
    under_way = sa.func.array(begun, type_=ARRAY(TransactionId))
    return [
        sa.select(*columns).where(stream.xid >= end(before)),
        sa.select(*columns).where(stream.xid == sa.any_(under_way)),
    ]
