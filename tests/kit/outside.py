"""Servers that the machine has already, named by TEST_POSTGRES_URL (an administrator's), TEST_REDIS_URL and
TEST_RABBITMQ_URL: the tests that ask for any server run on these too."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kombu import Connection

from app.outbox.broker import EXCHANGE, MARK, PREFIX
from tests.kit import events, servers, stages_world

EMBEDDED = "embedded"
_BROKERS = {"redis": "TEST_REDIS_URL", "rabbitmq": "TEST_RABBITMQ_URL"}
_POSTGRES = "TEST_POSTGRES_URL"
#: Those that the tasks of the kit use.
QUEUES = ("jobs", "other", "control", "reactive.default", "reactive.apart", "reactive.crowd", *stages_world.QUEUES)
EVENTS = (MARK, *(f"{PREFIX}{name}" for name in events.NAMES))


def brokers() -> list[str]:
    return [EMBEDDED, *(kind for kind, variable in _BROKERS.items() if os.environ.get(variable))]


def postgres_servers() -> list[str]:
    return [EMBEDDED, *(["outside"] if os.environ.get(_POSTGRES) else [])]


def postgres() -> str:
    scheme, _, rest = os.environ[_POSTGRES].partition("://")
    return f"{'postgresql+psycopg2' if scheme.startswith('postgres') else scheme}://{rest}"


@contextmanager
def broker(kind: str) -> Iterator[str]:
    """Empty, and ours alone until the end: the processes that run tests share it."""
    url = os.environ[_BROKERS[kind]]
    with (Path(tempfile.gettempdir()) / f"tidemill-test-{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _empty(kind, url)
        yield url
        _empty(kind, url)


def _empty(kind: str, url: str) -> None:
    if kind == "redis":
        servers.flush(url)
        return
    with Connection(url) as connection:
        channel: Any = connection.default_channel
        for queue in (*QUEUES, *EVENTS):
            channel.queue_delete(queue=queue)
        channel.exchange_delete(EXCHANGE.name)
