"""Bringing the schema `tidemill` to this release, and saying whether it is there.

Migrations run under an advisory lock, so that any number of services may try at once, and in one transaction: a crash
leaves the old schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection, Engine

from app.db import SCHEMA

LOCK = 0x71DE_0001
FLOOR = 15


@dataclass(frozen=True)
class State:
    current: str | None
    wanted: str

    @property
    def current_is_wanted(self) -> bool:
        return self.current == self.wanted


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


def migrate(engine: Engine) -> State:
    """To the head; returns what was there before."""
    with engine.begin() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
        if SCHEMA not in sa.inspect(connection).get_schema_names():
            connection.execute(sa.schema.CreateSchema(SCHEMA))
        before = _current(connection)
        alembic = config()
        alembic.attributes["connection"] = connection
        command.upgrade(alembic, "head")
        return State(before, _head())
