"""The database: one engine a process, made after fork, and `transaction()`.

Promises:
- A forked child never uses a connection of its parent.
- The number of connections of a process is bounded (J7): `pool_size` in a program, one for each thread in a server, one
  in a worker child, which may open a second only while a task opens a transaction inside another.
- A connection that the server has closed meanwhile, or that a failed commit has left in its transaction, is replaced
  before anyone gets to use it.
- Errors that say something about the database itself, not about the statement, arrive as `app.errors.DatabaseError`.
"""

from __future__ import annotations

import logging
import os
import re
import select
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from psycopg2.extensions import TRANSACTION_STATUS_IDLE
from sqlalchemy import event
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.engine.interfaces import ExceptionContext
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.pool import PoolProxiedConnection

from app import errors
from app.settings import settings

SCHEMA = "tidemill"
# Classes of SQLSTATE that mean "the server is not there", not "the statement was wrong".
_AWAY = ("08", "57P", "53300")
#: By SQLSTATE, of what there is not: how it is ours that is missing, not what a user has named.
_MISSING = {
    "3F000": re.compile(rf"(?<!\w){SCHEMA}(?!\w)"),
    "42P01": re.compile(rf"(?<!\w){SCHEMA}\."),
    "42883": re.compile(""),
}
# Nor was it wrong where the server's disk is full.
_FULL = "53100"


class Base(DeclarativeBase):
    """For models of users; their tables live in the schema of their choice."""


class Model(DeclarativeBase):
    """For Tidemill's own tables, which live in the schema `tidemill`."""

    metadata = sa.MetaData(
        schema=SCHEMA,
        naming_convention={
            "ix": "%(table_name)s_%(column_0_N_name)s",
            "uq": "%(table_name)s_%(column_0_N_name)s_key",
            "ck": "%(table_name)s_%(constraint_name)s",
            "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
            "pk": "%(table_name)s_pkey",
        },
    )
    type_annotation_map = {datetime: TIMESTAMP(timezone=True), str: sa.Text}  # noqa: RUF012


class _Pool(sa.QueuePool):
    def connect(self) -> PoolProxiedConnection:
        try:
            return super().connect()
        except PoolTimeout as error:
            raise errors.PoolExhausted(
                "all database connections of this process are in use: end a transaction before opening another, "
                "or raise TIDEMILL_POOL_SIZE"
            ) from error


# SQLAlchemy calls its logger so. At every stop and every outage it would say that connections are given up, which is
# said elsewhere, in fewer words.
logging.getLogger(f"{__name__}.{_Pool.__name__}").setLevel(logging.WARNING)


def new_engine(url: str, *, pool_size: int, overflow: int = 0, name: str = "tidemill", options: str = "") -> Engine:
    engine = sa.create_engine(
        url,
        poolclass=_Pool,
        # What jobs carry is not for logs.
        hide_parameters=True,
        pool_size=pool_size,
        max_overflow=overflow,
        pool_timeout=10,
        connect_args=_connect_args(url, name, options),
    )
    # Before SQLAlchemy asks the first connection for its isolation level, to which it sets others back.
    event.listen(engine, "connect", _set_up, insert=True)
    event.listen(engine, "checkout", _refuse_unusable)
    event.listen(engine, "handle_error", _translate)
    return engine


def _connect_args(url: str, name: str, options: str) -> dict[str, Any]:
    """What the URL says itself is left as it is; of its options, ours come last."""
    said = make_url(url).query
    theirs = said.get("options", os.environ.get("PGOPTIONS", ""))
    together = " ".join(each for each in (*([theirs] if isinstance(theirs, str) else theirs), options) if each)
    ours = {
        "application_name": name,
        "connect_timeout": 3,
        # A server that vanished without a word is noticed within seconds, not after the kernel's two hours.
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
    }
    return {word: value for word, value in ours.items() if word not in said} | (
        {"options": together} if together else {}
    )


#: Whatever was set for the database or the role. What is worked on lies in memory. By its default, which is that of
#: turning disks, the planner would rather read a whole table of some ten thousand rows than look a hundred up: three
#: times the time for a batch of visits. And of a machine that vanishes in the middle of a transaction the server hears
#: nothing: it would keep its locks, also that on the limits of a queue, for the kernel's two hours.
_SESSION = {
    # The only form of a span that the driver can read, and floats to the last digit.
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    # Who waits for a lock goes on with what is there then; in other levels it fails.
    "default_transaction_isolation": "read committed",
    "random_page_cost": "1.1",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30s",
}


def _set_up(connection: Any, _record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config(name, value, false) FROM unnest(%s, %s) AS each (name, value)",
            (list(_SESSION), list(_SESSION.values())),
        )
    connection.commit()


def _refuse_unusable(connection: Any, _record: object, _proxy: object) -> None:
    """The server speaks to an idle connection only to say goodbye: a poll costs 2 µs, a ping a round trip."""
    # Where a COMMIT was cancelled, the driver believes the transaction to be over: it rolls nothing back.
    if connection.get_transaction_status() != TRANSACTION_STATUS_IDLE:
        raise DisconnectionError
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):
        raise DisconnectionError


def _translate(context: ExceptionContext) -> None:
    raised = context.original_exception
    code = getattr(raised, "pgcode", None)
    if isinstance(raised, sa.exc.DBAPIError | OSError) or context.sqlalchemy_exception is not None:
        operational = isinstance(context.sqlalchemy_exception, sa.exc.OperationalError | sa.exc.InterfaceError)
        if context.is_disconnect or (operational and code is None) or (code or "").startswith(_AWAY):
            raise errors.Unavailable(f"the database does not answer: {_first_line(raised)}") from raised
        if code == _FULL:
            raise errors.Unavailable(f"the database has no room left: {_first_line(raised)}") from raised
    if code in _MISSING and SCHEMA in str(raised):
        if not _MISSING[code].search(_first_line(raised)):
            raise errors.NotFound(f"{_first_line(raised)}: create it first") from raised
        raise errors.NotMigrated(
            f"the schema '{SCHEMA}' is missing or of another release, or a function was called with arguments of other "
            f"types ({_first_line(raised)}): run 'tidemill migrate', or cast the arguments"
        ) from raised
    if code == "42703" and f"{SCHEMA}." in (context.statement or ""):
        raise errors.NotMigrated(
            f"the schema '{SCHEMA}' is of another release, or a statement names a column that there is not "
            f"({_first_line(raised)}): run 'tidemill migrate'"
        ) from raised


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


class _Process:
    """The engine of this process, and how many connections it may have; a fork starts anew."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.worker_child = False
        self.threads: int | None = None

    def forked(self) -> None:
        if self.engine is not None:
            # The sockets belong to the parent: forget them without a goodbye that would end the parent's sessions.
            self.engine.dispose(close=False)
        self.engine = None


_process = _Process()
os.register_at_fork(after_in_child=_process.forked)


def engine() -> Engine:
    if _process.engine is None:
        size, overflow = (1, 1) if _process.worker_child else (_process.threads or settings().pool_size, 0)
        _process.engine = new_engine(settings().resolved_database_url(), pool_size=size, overflow=overflow)
    return _process.engine


def dispose() -> None:
    """Closes this process's connections; the next use opens new ones."""
    if _process.engine is not None:
        _process.engine.dispose()
        _process.engine = None


def become_server(threads: int) -> None:
    """As many connections as threads, from now on, so that none of them waits for one."""
    dispose()
    _process.threads = threads


def become_worker_child() -> None:
    """One connection for work, from now on (J7)."""
    dispose()
    _process.worker_child = True


# What each transaction of the running task must keep to: set by the runner of a call that has a time limit.
remaining_time: ContextVar[Any] = ContextVar("remaining_time", default=None)


@contextmanager
def transaction() -> Iterator[Session]:
    """One Postgres transaction: committed at the end of the block, rolled back if it raises.

    with transaction() as session:
        session.add(order)
        enqueue(send_mail.s(order.id), session=session)
    """
    # Closed for good at the end: what is enqueued in it later would go nowhere, and must say so.
    with Session(engine(), expire_on_commit=False, close_resets_only=False) as session, session.begin():
        keep_to_time(session)
        yield session


def keep_to_time(session: Session) -> None:
    """From now on in this transaction, no statement takes longer than the time that remains. At its beginning this is
    done for it; again, before each further statement that may wait for locks, or their waits would add up."""
    if (remaining := remaining_time.get()) is not None:
        # An alarm reaches Python only when the query has ended; this ends the query.
        limit = min(max(1, int(remaining() * 1000)), 2**31 - 1)
        session.execute(sa.select(sa.func.set_config("statement_timeout", str(limit), True)))


@contextmanager
def joined(session: Session | None) -> Iterator[Session]:
    """The caller's transaction, or else one of our own."""
    if session is not None:
        yield session
    else:
        with transaction() as own:
            yield own


@contextmanager
def autocommit() -> Iterator[Connection]:
    """For single statements: each is a transaction of its own, in one round trip instead of three."""
    with engine().connect() as connection:
        driver: Any = connection.connection.driver_connection
        # Not the isolation level AUTOCOMMIT of SQLAlchemy, which sends statements of its own to set and reset it.
        driver.autocommit = True
        try:
            yield connection
        except sa.exc.DBAPIError:
            # Whatever a task has left behind in this session (read only, another role) ends with it.
            connection.invalidate()
            raise
        finally:
            if not driver.closed:
                driver.autocommit = False
