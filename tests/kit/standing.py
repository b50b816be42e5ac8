"""A database and a console that stand for all tests of a module: for those that leave alone what others look at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.console.web import memory
from app.embedded import OwnServers
from tests.conftest import using
from tests.kit import console
from tests.kit.database import Databases


@contextmanager
def database(servers: OwnServers, databases: Databases) -> Iterator[str]:
    """That of this process until the end of the block."""
    url = databases.lend()
    with pytest.MonkeyPatch.context() as patch, using(patch, url):
        patch.setenv("TIDEMILL_BROKER_URL", servers.broker_url)
        memory.forget_all()
        yield url
    memory.forget_all()
    databases.drop(url)


@contextmanager
def console_at(servers: OwnServers, databases: Databases) -> Iterator[str]:
    """The URL of the console."""
    with database(servers, databases), console.serving() as url:
        yield url
