"""Fixtures of all tests. Nothing here starts a server unless a test asks for one."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import db, duties, faults
from app.celery import app as celery_app
from app.claims import keeper
from app.embedded import OwnServers
from app.settings import settings
from tests.kit import outside
from tests.kit import servers as kit_servers
from tests.kit.database import Databases, up_for_long
from tests.kit.interleavings import Interleavings, interleavings
from tests.kit.process import ROOT, Processes
from triggers.service import cursor

MODULES = "tests.kit.tasks"

for _name in [name for name in os.environ if name.startswith("TIDEMILL_")]:
    del os.environ[_name]  # a developer's own servers are none of the tests' business
os.environ["TIDEMILL_HOME"] = "/nonexistent/tidemill-tests"
settings.cache_clear()
# A slow machine fails no test.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")
# Nor is a service within a process of the tests taken for frozen, because its machine is.
cursor.FROZEN_SECONDS = 600


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """xdist cannot carry half of a surrogate pair, with which some tests try the product."""
    return _encodable((yield))


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {_encodable(key): _encodable(each) for key, each in value.items()}
        case list() | tuple():
            return [_encodable(each) for each in value]
        case _:
            return value


@pytest.fixture(scope="session", autouse=True)
def _application() -> None:
    """The Celery application, with the tasks of the kit."""
    import_module(MODULES)
    celery_app.finalize()


@pytest.fixture(scope="session")
def _servers() -> Iterator[OwnServers]:
    with kit_servers.started() as own:
        yield own


@pytest.fixture
def servers(_servers: OwnServers) -> Iterator[OwnServers]:
    """The embedded pair of this process; both run when a test begins, whatever the one before did to them."""
    kit_servers.in_order(_servers)
    yield _servers
    kit_servers.in_order(_servers)


@pytest.fixture(scope="session")
def _databases(_servers: OwnServers) -> Iterator[Databases]:
    found = Databases(_servers.admin_url, _servers.database_url)
    yield found
    kit_servers.in_order(_servers)
    found.close()


@pytest.fixture
def databases(servers: OwnServers, _databases: Databases) -> Databases:
    return _databases


def forget_connections() -> None:
    """Everything in this process that remembers a database or its URL."""
    settings.cache_clear()
    db.dispose()
    duties.duties.drop()
    duties.duties._engine = None
    if (engine := keeper.keeper._engine) is not None:
        keeper.keeper._engine = None
        engine.dispose()


@contextmanager
def using(monkeypatch: pytest.MonkeyPatch, url: str) -> Iterator[str]:
    """This process works on that database."""
    monkeypatch.setenv("TIDEMILL_DATABASE_URL", url)
    forget_connections()
    yield url
    faults.install(None)
    forget_connections()


@pytest.fixture
def database_url(servers: OwnServers, databases: Databases, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A fresh migrated database, which is that of this process until the end of the test."""
    url = databases.lend()
    with using(monkeypatch, url):
        yield url
    kit_servers.in_order(servers)
    databases.give_back(url)


@pytest.fixture
def empty_database_url(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same without the schema `tidemill`."""
    url = databases.empty()
    with using(monkeypatch, url):
        yield url
    databases.drop(url)


@pytest.fixture
def engine(database_url: str) -> Engine:
    """That of `app.db`."""
    return db.engine()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    """For looking, and for what the test itself writes: commit it, or it goes."""
    with Session(engine) as found:
        yield found


@pytest.fixture
def every(servers: OwnServers, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Interleavings]:
    """Every order of some sessions on the database of the test; sweeps find the server up for long enough."""
    monkeypatch.setenv("TIDEMILL_LEASE", "1s")
    settings.cache_clear()
    up_for_long(engine)
    with interleavings(engine, servers.admin_url) as found:
        yield found


@pytest.fixture
def broker_url(servers: OwnServers, monkeypatch: pytest.MonkeyPatch) -> str:
    """The embedded broker, empty."""
    kit_servers.flush(servers.broker_url)
    _use_broker(monkeypatch, servers.broker_url)
    return servers.broker_url


def _use_broker(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("TIDEMILL_BROKER_URL", url)
    settings.cache_clear()


@pytest.fixture
def env(database_url: str, broker_url: str) -> dict[str, str]:
    """For programs that a test starts, on the test's database and broker."""
    return child_environment(database_url, broker_url)


def child_environment(database_url: str, broker_url: str, **more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "COV_"))}
    return plain | {
        "TIDEMILL_DATABASE_URL": database_url,
        "TIDEMILL_BROKER_URL": broker_url,
        "TIDEMILL_MODULES": MODULES,
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "C_FORCE_ROOT": "1",
        **more,
    }


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path)
    yield found
    found.end()


@pytest.fixture(params=outside.brokers())
def any_broker_url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each kind of broker in turn: the embedded one, and those of TEST_REDIS_URL and TEST_RABBITMQ_URL if set."""
    if request.param == outside.EMBEDDED:
        yield request.getfixturevalue("broker_url")
        return
    with outside.broker(request.param) as url:
        _use_broker(monkeypatch, url)
        yield url


@pytest.fixture(params=outside.postgres_servers())
def any_database_url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A migrated database on each Postgres in turn: the embedded 18, and that of TEST_POSTGRES_URL if set."""
    if request.param == outside.EMBEDDED:
        yield request.getfixturevalue("database_url")
        return
    found: Any = Databases(outside.postgres(), outside.postgres())
    url = found.clone()
    try:
        with using(monkeypatch, url):
            yield url
    finally:
        found.drop(url)
        found.close()
