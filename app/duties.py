"""One leader for each duty: an advisory lock on a connection of its own.

A leader that dies frees its locks with its connection. A leader that is frozen does not say anything, and its session
ends by `idle_session_timeout`; when it wakes up, its next word finds the connection gone, and it is no leader any more.
A duty is safe to do twice at once: the lock saves work, it does not guard data.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from app.db import new_engine
from app.errors import DatabaseError
from app.locks import DUTIES
from app.settings import settings

FROZEN_SECONDS = 10


class Duties:
    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._connection: Connection | None = None
        self._held: set[str] = set()
        self._pid = os.getpid()
        #: Another one with each connection: what was held by the last one may have been somebody else's since.
        self.session = 0

    def hold(self, name: str) -> bool:
        """Whether this process is, or has just become, the leader of the duty."""
        connection = self._connected()
        try:
            if name in self._held:
                connection.execute(sa.select(1))
                return True
            if connection.execute(sa.select(sa.func.pg_try_advisory_lock(DUTIES, number_of(name)))).scalar_one():
                self._held.add(name)
                return True
        except (SQLAlchemyError, DatabaseError):
            self.drop()
            raise
        return False

    @contextmanager
    def only_one(self, name: str) -> Iterator[bool]:
        """For a pass that is asked for from outside: whether nobody else makes it now.

        On a connection from the pool, which replaces one that the server has ended meanwhile for its idleness.
        """
        key = (DUTIES, number_of(name))
        with self._new_connection() as connection:
            mine = bool(connection.execute(sa.select(sa.func.pg_try_advisory_lock(*key))).scalar_one())
            try:
                yield mine
            finally:
                if mine:
                    with suppress(SQLAlchemyError, DatabaseError):
                        connection.execute(sa.select(sa.func.pg_advisory_unlock(*key)))

    def drop(self) -> None:
        """Gives up all duties, with the connection."""
        self._held.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError, DatabaseError):
                connection.invalidate()
                connection.close()

    def _connected(self) -> Connection:
        if self._pid != os.getpid():
            self._engine = self._connection = None
            self._held, self._pid = set(), os.getpid()
        if self._connection is None:
            self._connection = self._new_connection()
            self.session += 1
        return self._connection

    def _new_connection(self) -> Connection:
        if self._engine is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self._engine = new_engine(settings().resolved_database_url(), pool_size=1, name="tidemill-duties")
            event.listen(self._engine, "connect", _end_when_frozen)
        return self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")


def led(executor: Any, names: Iterable[str]) -> set[str]:
    """Those duties of this database that somebody holds at this moment."""
    numbers = held(executor)
    return {name for name in names if number_of(name) % 2**32 in numbers}


def held(executor: Any) -> set[int]:
    """The numbers of all of them, as Postgres shows them: without their sign."""
    locks = sa.table("pg_locks", *(sa.column(name) for name in ("locktype", "classid", "objid", "database", "granted")))
    here = sa.table("pg_database", sa.column("oid"), sa.column("datname"), schema="pg_catalog")
    own = sa.select(here.c.oid).where(here.c.datname == sa.func.current_database()).scalar_subquery()
    query = sa.select(sa.cast(locks.c.objid, sa.BigInteger)).where(
        locks.c.locktype == "advisory",
        sa.cast(locks.c.classid, sa.BigInteger) == DUTIES,
        locks.c.database == own,
        locks.c.granted,
    )
    return set(executor.execute(query).scalars())


def _end_when_frozen(connection: Any, _record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('idle_session_timeout', %s, false)", (f"{FROZEN_SECONDS}s",))
    connection.commit()


def number_of(name: str) -> int:
    return zlib.crc32(name.encode()) - 2**31


duties = Duties()
