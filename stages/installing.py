"""Putting the database trigger on a watched table (S7): `stages.install`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from app.errors import BadRequest, NotMigrated
from stages.watched import kind_of

UNDEFINED_TABLE = "42P01"


def install(connection: Connection | Session, *entities: Any) -> None:
    """Has the database count versions and enqueue the system stage with every write of these tables, whoever writes.

    May be called again at any time. In an Alembic migration: `stages.install(op.get_bind(), Offer)`; in a script, after
    `create_all`. The same in SQL: `select tidemill.watch('offer')`."""
    for each in entities:
        kind = kind_of(each)
        try:
            with _apart(connection):
                connection.execute(sa.select(sa.func.tidemill.watch(kind.table, kind.name)))
        except NotMigrated:
            raise
        except DBAPIError as error:
            diagnosis = getattr(error.orig, "diag", None)
            message = getattr(diagnosis, "message_primary", None)
            if message is None:
                raise
            missing = getattr(error.orig, "pgcode", None) == UNDEFINED_TABLE
            hint = "create it first" if missing else getattr(diagnosis, "message_hint", None)
            raise BadRequest(f"{message}: {hint}" if hint else str(message)) from error


def _apart(connection: Connection | Session) -> AbstractContextManager[Any]:
    """What is refused leaves the transaction of the caller as it was. In autocommit there is none."""
    own = connection.connection() if isinstance(connection, Session) else connection
    return nullcontext() if getattr(own.connection.dbapi_connection, "autocommit", False) else connection.begin_nested()
