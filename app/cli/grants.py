"""The least rights of the roles that use the schema, for databases where another role owns it."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from psycopg2 import sql
from sqlalchemy.engine import Connection, Engine

from app.db import SCHEMA
from app.errors import DatabaseError, NotFound

_RUNTIME = (
    "grant usage on schema {schema} to {role}",
    "grant select, insert, update, delete on all tables in schema {schema} to {role}",
    # Which revision this is, and how many shards there are, may be read, not written.
    "revoke insert, update, delete on {schema}.alembic_version, {schema}.sharding from {role}",
    # The last value too: an invariant compares it with the ids that there are.
    "grant usage, select on all sequences in schema {schema} to {role}",
    "grant execute on all functions in schema {schema} to {role}",
)
#: What a producer may call, and nothing else of the schema.
OF_PRODUCERS = ("enqueue", "advance", "advance_many", "offer")
_PRODUCER = (
    "grant usage on schema {schema} to {role}",
    *(f"grant execute on function {{schema}}.{name} to {{role}}" for name in OF_PRODUCERS),
)


def grant_runtime(engine: Engine, role: str) -> None:
    _grant(engine, role, _RUNTIME)


def grant_producer(engine: Engine, role: str) -> None:
    _grant(engine, role, _PRODUCER)


def _grant(engine: Engine, role: str, statements: tuple[str, ...]) -> None:
    with engine.begin() as connection:
        _refuse_stranger(connection)
        roles = sa.table("pg_roles", sa.column("rolname"), schema="pg_catalog")
        if connection.execute(sa.select(roles).where(roles.c.rolname == role)).first() is None:
            raise NotFound(f"the database has no role {role!r}: create it first")
        raw: Any = connection.connection.driver_connection
        for statement in statements:
            composed = sql.SQL(statement).format(schema=sql.Identifier(SCHEMA), role=sql.Identifier(role))
            connection.exec_driver_sql(composed.as_string(raw).replace("%", "%%"))


def _refuse_stranger(connection: Connection) -> None:
    """Postgres only warns when rights are granted by someone who has none to give."""
    schemas = sa.table("pg_namespace", sa.column("nspname"), sa.column("nspowner"), schema="pg_catalog")
    owns = sa.select(sa.func.pg_has_role(schemas.c.nspowner, "usage")).where(schemas.c.nspname == SCHEMA)
    if not connection.execute(owns).scalar_one():
        role = connection.execute(sa.select(sa.func.current_user())).scalar_one()
        raise DatabaseError(f"role {role} does not own the schema {SCHEMA}: only its owner can give rights on it")
