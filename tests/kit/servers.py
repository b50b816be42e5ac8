"""The embedded servers of a test session: one pair for each process that runs tests, started when first asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis

from app.embedded import OwnServers
from app.embedded import servers as embedded_servers

#: Nobody reads the data after the session.
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum_naptime": "1h",
}


@contextmanager
def started(version: int = 18) -> Iterator[OwnServers]:
    with embedded_servers(postgres_options=FAST, postgres_version=version) as own:
        yield own


def in_order(own: OwnServers) -> None:
    """Whatever the last test did to them."""
    for server in (own.postgres, own.broker):
        server.resume()
        server.start()


def flush(broker_url: str) -> None:
    with redis.Redis.from_url(broker_url, socket_timeout=60) as broker:
        broker.flushdb()  # not all: it may be the machine's
