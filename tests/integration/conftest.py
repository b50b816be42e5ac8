"""Fixtures of tests that need a database."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from app.jobs.model import Job
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
