"""The store of SQLAlchemy models on big tables: all by index, counting and cutting without reading all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from itertools import pairwise

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.db import new_engine
from stages import Change
from tests.kit import entities
from tests.kit.database import Databases
from tests.kit.entities import CASES
from tests.kit.plans import Plan, Statement, captured, explain, explain_prepared

ROWS = 100_000
FILLED = {
    "offer": "(id, heading, amount) SELECT 'o-' || i, 'title', i",
    "counter": "(number, heading, amount) SELECT i, 'title', i",
    "ticket": "(id, heading, amount) SELECT gen_random_uuid(), 'title', i",
    "line": """("order", line_no, heading, amount) SELECT 'o-' || i / 10, i % 10, 'title', i""",
}
NAMES = ["text", "int", "uuid", "composite"]


@pytest.fixture(scope="module")
def big(_databases: Databases) -> Iterator[Engine]:
    url = _databases.clone()
    engine = new_engine(url, pool_size=2)
    entities.create_all(engine)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for table, columns in FILLED.items():
            connection.execute(
                sa.text(f"INSERT INTO public.{table} {columns} FROM generate_series(1, :rows) i"), {"rows": ROWS}
            )
            connection.execute(sa.text(f"VACUUM ANALYZE public.{table}"))
    yield engine
    engine.dispose()
    _databases.drop(url)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_found_by_the_index_of_the_key(big: Engine, name: str, subtests: pytest.Subtests) -> None:
    case = CASES[name]
    with Session(big) as session:
        ids = [each.id for each in case.store.page(session, None, None, 100)]
        asked: dict[str, Callable[[], Sized]] = {
            "load": lambda: case.store.load(session, ids),
            "versions": lambda: case.store.versions(session, ids),
            "save": lambda: case.store.save(session, [Change(each, 1, {"amount": 0}) for each in ids]),
            "save, each its own": lambda: case.store.save(
                session, [Change(each, 2, {"amount": 1} if i % 2 else {"heading": "x"}) for i, each in enumerate(ids)]
            ),
            "save, waiting": lambda: case.store.save(session, [Change(ids[0], 3, {"amount": 0})], wait=True),
            "page, the first": lambda: case.store.page(session, None, None, 100),
            "page": lambda: case.store.page(session, ids[50], ids[99], 20),
            "page, without end": lambda: case.store.page(session, ids[50], None, 100),
        }
        for what, ask in asked.items():
            with subtests.test(what):
                with captured(big) as statements:
                    found = ask()
                assert len(found) > 0
                plan = _plan(big, statements)
                assert plan.read_whole() == set(), plan.root
                assert plan.indexes() == {f"{case.table}_pkey"}, plan.root
        session.rollback()


def _plan(engine: Engine, statements: list[Statement]) -> Plan:
    """Of the one that was sent; of one that the server keeps, the plan for all parameters."""
    *prepared, statement = statements
    if not prepared:
        return explain(engine, statement)
    (prepare,) = prepared
    return explain_prepared(engine, Statement(prepare.text.replace("%%", "%"), None), statement)


@pytest.mark.parametrize("name", NAMES)
def test_many_are_estimated_and_cut_by_a_sample(big: Engine, name: str) -> None:
    case = CASES[name]
    with Session(big) as session:
        with captured(big) as statements:
            assert case.store.count(session) == pytest.approx(ROWS, rel=0.05)
        assert len(statements) == 1
        with captured(big) as statements:
            cuts = case.store.split(session, 8)
        assert "TABLESAMPLE" in statements[-1].text
        assert len(cuts) == 7
        sizes = [len(case.store.page(session, after, until, ROWS)) for after, until in pairwise([None, *cuts, None])]
    assert sum(sizes) == ROWS
    assert max(sizes) < 3 * ROWS / 8
    assert min(sizes) > ROWS / 8 / 10
