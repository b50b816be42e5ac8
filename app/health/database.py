"""Checks of the database itself: is it there, is it ours, may we use it."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app import migrate
from app.db import SCHEMA
from app.health.finding import Finding, fail, ok, warn
from app.schema import TABLES
from stages.model import Sharding

#: Times that producers reckon with their own clock (eta, expires) are off by this.
SKEW = timedelta(seconds=2)
RIGHTS = ("select", "insert", "update", "delete")
#: Written once, by the migration.
ONLY_READ = (Sharding,)
#: A worker child works on one connection and extends its claims on another; its main process, a scheduler and beat have
#: one or two each.
PER_SLOT, PER_WORKER, SERVICES = 2, 2, 4
FULL = 0.8
_SCHEMA_EXISTS = sa.func.to_regnamespace(SCHEMA).is_not(None)


def version(connection: Connection) -> Finding:
    number = int(_scalar(connection, sa.func.current_setting("server_version_num")))
    if number // 10_000 < migrate.FLOOR:
        return fail("version", f"Postgres {number // 10_000}", f"use Postgres {migrate.FLOOR} or later")
    return ok("version", f"Postgres {_scalar(connection, sa.func.current_setting('server_version'))}")


def schema(connection: Connection) -> Finding:
    if _scalar(connection, _SCHEMA_EXISTS) and not _scalar(connection, sa.func.has_schema_privilege(SCHEMA, "usage")):
        return fail("rights", f"role {_role(connection)} may not use the schema {SCHEMA}", _grant(connection))
    state = migrate.state(connection.engine)
    if state.current_is_wanted:
        return ok("schema", f"revision {state.wanted}")
    if state.current_is_later:
        detail = f"revision {state.current}, later than {state.wanted} of this release"
        return warn("schema", detail, "end the upgrade: replace what runs of this release")
    detail = f"revision {state.current or 'none'}, this release needs {state.wanted}"
    return fail("schema", detail, "run 'tidemill migrate'")


def rights(connection: Connection) -> Finding:
    role = _role(connection)
    missing = [
        f"{right} on {model.__tablename__}"
        for model in TABLES
        for right in (RIGHTS[:1] if model in ONLY_READ else RIGHTS)
        if not _scalar(connection, sa.func.has_table_privilege(f"{SCHEMA}.{model.__tablename__}", right))
    ]
    if missing:
        return fail("rights", f"role {role} lacks {', '.join(missing)}", _grant(connection))
    return ok("rights", f"role {role} has all it needs")


def _role(connection: Connection) -> str:
    return str(_scalar(connection, sa.func.current_user()))


def _grant(connection: Connection) -> str:
    return f"as the owner of the schema, run 'tidemill migrate --grant {shlex.quote(_role(connection))}'"


def clock(connection: Connection) -> Finding:
    before = datetime.now(UTC)
    theirs: datetime = _scalar(connection, sa.func.clock_timestamp())
    off = theirs - (before + (datetime.now(UTC) - before) / 2)
    detail = f"this machine and the database differ by {abs(off).total_seconds():.2f} s"
    if abs(off) > SKEW:
        return warn("clock", detail, "let both keep network time: eta= and expires= given as times are off by as much")
    return ok("clock", detail)


def connections(connection: Connection, workers: int, slots: int) -> Finding:
    most = sum(
        int(_scalar(connection, sa.func.current_setting(name))) * sign
        for name, sign in (("max_connections", 1), ("superuser_reserved_connections", -1))
    )
    # Of other roles' sessions only the database is shown to an ordinary role.
    activity = sa.table("pg_stat_activity", sa.column("datname"), schema="pg_catalog")
    open_ = connection.execute(sa.select(sa.func.count()).where(activity.c.datname.is_not(None))).scalar_one()
    expected = slots * PER_SLOT + workers * PER_WORKER + SERVICES
    detail = f"{open_} of {most} are open, the live workers and services may use {expected}"
    if max(open_, expected) > most * FULL:
        return warn("connections", detail, "raise max_connections, or run fewer worker slots")
    return ok("connections", detail)


def _scalar(connection: Connection, expression: Any) -> Any:
    return connection.execute(sa.select(expression)).scalar_one()
