"""What is searched for among very many processes is read by an index, whatever it is (R10)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import db
from app.embedded import OwnServers
from tests.conftest import using
from tests.kit import process_crowd
from tests.kit.database import Databases
from tests.kit.process_crowd import BROKEN, FEW, LAST, found_by_index, groups_by_index

ROWS = 100_000


@pytest.fixture(scope="module")
def big_url(_databases: Databases) -> Iterator[str]:
    url = _databases.clone()
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    process_crowd.fill(engine, ROWS)
    yield url
    _databases.drop(url)


@pytest.fixture
def big(servers: OwnServers, big_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    with using(monkeypatch, big_url), Session(db.engine()) as session:
        yield session


def test_each_search_is_made_by_its_index(big: Session, subtests: pytest.Subtests) -> None:
    # R10
    engine = db.engine()
    for name, (filters, index) in process_crowd.searches(big, ROWS).items():
        with subtests.test(name):
            found, used = found_by_index(big, engine, filters)
            assert found
            assert index in used


def test_errors_are_grouped_by_index(big: Session) -> None:
    engine: Engine = db.engine()
    sizes, used = groups_by_index(big, engine)
    assert sizes == [ROWS // BROKEN * 9 // 10 - FEW // BROKEN, ROWS // BROKEN // 10, FEW // BROKEN]
    assert "broken_task_fingerprint" in used
    assert "broken_task_actor" in groups_by_index(big, engine, actor="seldom")[1]
    assert "process_state" in groups_by_index(big, engine, name="rare")[1]
    assert "broken_task_at" in groups_by_index(big, engine, since=LAST)[1]
