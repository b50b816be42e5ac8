"""The one Postgres and the one Redis on which everything of a run is measured.

The embedded servers, or those that TIDEMILL_DATABASE_URL and TIDEMILL_BROKER_URL name. On servers that belong to
somebody else a run touches nothing but a database that it creates and numbered Redis databases that it finds empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg2
import redis
from psycopg2 import sql

from bench.errors import BenchError

# `.tidemill/` is git-ignored at any depth, and lies on the disk of the checkout: a temporary folder may be memory,
# where fsync costs nothing.
HOME = Path(__file__).parent / ".tidemill"


@dataclass(frozen=True)
class Servers:
    database_url: str = field(repr=False)  # they hold passwords
    broker_url: str = field(repr=False)
    peers_broker_url: str = field(repr=False)

    @property
    def plain_database_url(self) -> str:
        return plain(self.database_url)


def plain(database_url: str) -> str:
    """The URL as psycopg2 reads it, without the driver that SQLAlchemy wants named."""
    parts = urlsplit(database_url)
    return urlunsplit(parts._replace(scheme=parts.scheme.partition("+")[0]))


def at(url: str, path: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{path}"))


def _given(stack: ExitStack) -> tuple[str, str, str]:
    """URLs of: somebody who may create databases, the user who shall own ours, the broker."""
    database_url = os.environ.get("TIDEMILL_DATABASE_URL")
    broker_url = os.environ.get("TIDEMILL_BROKER_URL")
    if database_url and broker_url:
        return database_url, database_url, broker_url
    # Here: where both URLs are given, the embedded servers need not be installed.
    from app.embedded import servers
    from app.errors import EmbeddedError

    try:
        embedded = stack.enter_context(servers(home=HOME))
    except EmbeddedError as error:
        raise BenchError(str(error)) from error
    if database_url:
        return database_url, database_url, broker_url or embedded.broker_url
    return embedded.admin_url, embedded.database_url, broker_url or embedded.broker_url


@contextmanager
def _database(admin_url: str, owner_url: str) -> Iterator[str]:
    name = f"tidemill_bench_{os.getpid()}"
    admin = psycopg2.connect(plain(admin_url))
    admin.autocommit = True
    try:
        with admin.cursor() as cursor:
            for setting in ("fsync", "synchronous_commit"):
                cursor.execute("select current_setting(%s)", (setting,))
                value = cursor.fetchone()
                if value is None or value[0] != "on":
                    raise BenchError(f"Postgres runs with {setting} = {value and value[0]}; figures need it on.")
            owner = urlsplit(owner_url).username
            statement = sql.SQL("create database {}").format(sql.Identifier(name))
            if owner:
                statement += sql.SQL(" owner {}").format(sql.Identifier(owner))
            cursor.execute(statement)
        yield at(owner_url, name)
    finally:
        with admin.cursor() as cursor:
            cursor.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
        admin.close()


@contextmanager
def _empty_brokers(broker_url: str, count: int) -> Iterator[list[str]]:
    empty: list[str] = []
    for number in range(16):
        url = at(broker_url, str(number))
        with redis.Redis.from_url(url) as client:
            if len(empty) < count and client.dbsize() == 0:
                empty.append(url)
    if len(empty) < count:
        raise BenchError(f"The broker has {len(empty)} empty numbered databases, {count} are needed.")
    try:
        yield empty
    finally:
        for url in empty:
            with redis.Redis.from_url(url) as client:
                client.flushdb()


@contextmanager
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        admin_url, owner_url, broker_url = _given(stack)
        ours, peers = stack.enter_context(_empty_brokers(broker_url, 2))
        database_url = stack.enter_context(_database(admin_url, owner_url))
        yield Servers(database_url, ours, peers)
