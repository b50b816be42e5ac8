"""Fixtures of tests that need a database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy.orm import Session

from app.jobs.model import Job
from tests.kit.remote import Service, running
from tests.kit.tables import Table
from tests.kit.visit import Visit


@pytest.fixture
def visits(session: Session) -> Table:
    return Table(Visit)


@pytest.fixture
def jobs(session: Session) -> Table:
    return Table(Job)


@pytest.fixture(params=["jobs", "visits"])
def table(request: pytest.FixtureRequest) -> Table:
    """Each in turn."""
    found: Table = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def _service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("remote")) as found:
        yield found


@pytest.fixture
def service(_service: Service) -> Service:
    """In which stages live; as if nobody had called it."""
    return _service.forget()
