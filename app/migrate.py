"""Bringing the schema `tidemill` to this release, and saying whether it is there.

Migrations run under an advisory lock, so that any number of services may try at once, and in one transaction: a crash
leaves the old schema. They run while others work, who wait for a moment: all tables are taken at first, or none. One
that somebody uses for long is not waited for, since whoever comes later would wait behind: the others have their turn,
and it is tried again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg2 import sql
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import OperationalError

from app import locks
from app.db import SCHEMA
from app.errors import DatabaseError
from app.locks import Lock

log = logging.getLogger(__name__)

FLOOR = 15
#: How long the table that was in use the last time is waited for, by who holds none; how often, with a pause between.
LOCK_SECONDS = 2.0
TRIES = 30
PAUSE_SECONDS = 1.0
#: All of them are taken in less time than that after which Postgres looks for deadlocks, and ends somebody's work.
ALL_SECONDS = 0.7
_NOT_NOW = ("55P03", "40P01")


@dataclass(frozen=True)
class State:
    current: str | None
    wanted: str

    @property
    def current_is_wanted(self) -> bool:
        return self.current == self.wanted

    @property
    def current_is_later(self) -> bool:
        """Somebody has migrated with a later release; this one runs on it until it is replaced."""
        return self.current is not None and self.current > self.wanted


def config() -> Config:
    found = Config()
    found.set_main_option("script_location", str(files("app") / "migrations"))
    return found


def state(engine: Engine) -> State:
    with engine.connect() as connection:
        return State(_current(connection), _head())


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection, opts={"version_table_schema": SCHEMA}).get_current_revision()


def _head() -> str:
    head = ScriptDirectory.from_config(config()).get_current_head()
    assert head is not None  # noqa: S101 - there is always a first revision
    return head


class _InUse(Exception):
    """A table, by a transaction."""


def migrate(engine: Engine) -> State:
    """To the head; returns what was there before."""
    table = ""
    for tried in range(1, TRIES + 1):
        try:
            return _migrate(engine, table)
        except _InUse as error:
            table = str(error)
        log.warning("table %s is in use by a transaction that does not end: tried %s times of %s", table, tried, TRIES)
        time.sleep(PAUSE_SECONDS)
    raise DatabaseError(
        f"schema {SCHEMA} is as it was: in {TRIES} tries, a table was always in use, the last time {table}. Find the "
        f"transaction in pg_stat_activity (the oldest xact_start), let it end, and migrate again"
    )


def _migrate(engine: Engine, first: str) -> State:
    with engine.begin() as connection:
        locks.take(connection, Lock.MIGRATION)
        tables = sa.inspect(connection).get_table_names(schema=SCHEMA)
        before = State(_current(connection), _head())
        if before.current_is_later:
            raise DatabaseError(
                f"schema {SCHEMA} is at revision {before.current}, which is later than {before.wanted} of this "
                f"release: there is nothing to migrate for it; migrate with the later release"
            )
        if before.current_is_wanted:
            return before
        if SCHEMA not in sa.inspect(connection).get_schema_names():
            connection.execute(sa.schema.CreateSchema(SCHEMA))
        _take(connection, sorted(tables, key=lambda table: (table != first, table)), first)
        # What is written in migrations means the same in every database.
        connection.execute(sa.select(sa.func.set_config("standard_conforming_strings", "on", True)))
        alembic = config()
        alembic.attributes["connection"] = connection
        command.upgrade(alembic, "head")
        return before


def _take(connection: Connection, tables: Sequence[str], first: str) -> None:
    """All, before any is changed: who waits for one while it holds another stops others, and may wait in a circle. That
    others have waited behind us for the first one counts: soon Postgres looks whether they wait in one."""
    raw: Any = connection.connection.driver_connection
    begun = time.monotonic()
    for table in tables:
        left = LOCK_SECONDS if table == first else ALL_SECONDS - (time.monotonic() - begun)
        connection.execute(sa.select(sa.func.set_config("lock_timeout", f"{max(1, round(left * 1000))}ms", True)))
        lock = sql.SQL("lock table {}.{} in access exclusive mode").format(*map(sql.Identifier, (SCHEMA, table)))
        try:
            connection.exec_driver_sql(lock.as_string(raw))
        except OperationalError as error:
            if getattr(error.orig, "pgcode", None) not in _NOT_NOW:
                raise
            raise _InUse(table) from error
    connection.execute(sa.select(sa.func.set_config("lock_timeout", "0", True)))
