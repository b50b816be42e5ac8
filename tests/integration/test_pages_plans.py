"""Pages answer from indexes: with very much in the database, no page reads a large table from one end to the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app import db
from app.embedded import OwnServers
from tests.kit import console, process_crowd, standing
from tests.kit.database import Databases
from tests.kit.pages import Person
from tests.kit.plans import captured, explain

ROWS = 30_000
MORE = """
INSERT INTO tidemill.audit (actor, action, subject, at)
SELECT CASE WHEN i %% 5000 = 0 THEN 'olga@console' ELSE 'root@host' END, 'queue.pause', 'queue-' || i %% 2000, now()
FROM generate_series(1, %(rows)s) i;
INSERT INTO tidemill.operation (id, kind, state, selection, parameters, total, done, created_by, started_at, ended_at)
OVERRIDING SYSTEM VALUE
SELECT i, 'check', 'DONE', '{}', '{}', items, items, 'olga', now(), now()
FROM (SELECT i, CASE WHEN i = 1 THEN %(rows)s ELSE 0 END AS items FROM generate_series(1, 2000) i) o;
INSERT INTO tidemill.operation_item (operation_id, position, process_id, state, outcome, at)
SELECT 1, i, i, 'DONE', 'well', now() FROM generate_series(1, %(rows)s) i;
INSERT INTO tidemill.task (process_id, number, actor, state, arguments)
SELECT i, n, 'charge', 'FINISHED', '{"args": [], "kwargs": {}}'
FROM generate_series(1, %(rows)s) i, (VALUES (1), (2)) v (n);
INSERT INTO tidemill.task (process_id, number, actor, state, arguments)
SELECT 777, n, 'charge', 'FINISHED', '{"args": [], "kwargs": {}}' FROM generate_series(3, 10000) n;
UPDATE tidemill.graph SET tasks = 10000 WHERE process_id = 777;
"""
LARGE = {"process", "graph", "decision", "broken_task", "task", "audit", "operation", "operation_item"}
PAGES = (
    "/",
    "/audit",
    "/audit?before=15000",
    "/audit?actor=olga%40console",
    "/audit?subject=queue-7",
    "/processes",
    "/processes?before=15000",
    "/processes?state=BROKEN&actor=seldom",
    "/processes?custom_id=order-777",
    "/processes?state=ACTIVE&name=sell",
    "/processes/20000",
    "/processes/777",
    "/processes/777?after=5000",
    "/operations",
    "/operations?before=1000&live=yes",
    "/operations?kind=abort",
    "/operations/1?after=15000",
    "/operations/1?items=FAILED",
    "/actors",
    "/actor?name=charge",
)
#: Outcomes are counted over all items of an operation, which is why that is remembered for a while; here it has all
#: that there are.
WHOLE = {"/operations/1?after=15000": {"operation_item"}, "/operations/1?items=FAILED": {"operation_item"}}


@pytest.fixture(scope="module")
def person(_servers: OwnServers, _databases: Databases) -> Iterator[Person]:
    with standing.console_at(_servers, _databases) as url:
        engine = db.engine()
        process_crowd.fill(engine, ROWS)
        with engine.begin() as connection:
            connection.exec_driver_sql(MORE, {"rows": ROWS})
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")
        found = Person(url)
        found.sign_in(console.token("olga", "viewer"))
        yield found


@pytest.mark.parametrize("path", PAGES)
def test_no_large_table_is_read_whole(person: Person, path: str) -> None:
    engine = db.engine()
    with captured(engine) as statements:
        assert person.get(path).status == 200
    plans = [explain(engine, each) for each in statements if each.text.lstrip().upper().startswith(("SELECT", "WITH"))]
    assert plans
    assert {table for plan in plans for table in plan.read_whole()} & LARGE <= WHOLE.get(path, set())
