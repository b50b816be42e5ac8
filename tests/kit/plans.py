"""What Postgres does for a statement: the plan, and the pages it reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Engine


@dataclass(frozen=True)
class Statement:
    text: str
    parameters: Any
    #: Sent with it, before it.
    settings: str = ""


@contextmanager
def captured(engine: Engine) -> Iterator[list[Statement]]:
    """The statements that are sent meanwhile, as the driver gets them."""
    found: list[Statement] = []

    def note(_connection: Any, _cursor: Any, text: str, parameters: Any, _context: Any, _many: object) -> None:
        settings, _, statement = text.rpartition("; ") if text.startswith("SET LOCAL ") else ("", "", text)
        found.append(Statement(statement, parameters, settings))

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)


@dataclass(frozen=True)
class Plan:
    root: dict[str, Any]

    def nodes(self) -> Iterator[dict[str, Any]]:
        rest = [self.root]
        while rest:
            node = rest.pop()
            yield node
            rest += node.get("Plans", [])

    def read_whole(self) -> set[str]:
        """Tables that are read from one end to the other."""
        return {node["Relation Name"] for node in self.nodes() if node["Node Type"] == "Seq Scan"}

    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in self.nodes() if "Index Name" in node}

    @property
    def pages(self) -> int:
        """Read in all, with `analyze`."""
        return _pages(self.root)

    def pages_of(self, index: str) -> int:
        """Read by the scan of this index that read the most."""
        return max(_pages(node) for node in self.nodes() if node.get("Index Name") == index)


def _pages(node: dict[str, Any]) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


def explain(engine: Engine, statement: Statement, *, analyze: bool = False) -> Plan:
    """With `analyze` it is run, and rolled back."""
    options = "ANALYZE, BUFFERS, FORMAT JSON" if analyze else "FORMAT JSON"
    with engine.connect() as connection, connection.begin() as tx:
        found = connection.exec_driver_sql(f"EXPLAIN ({options}) {statement.text}", statement.parameters).scalar_one()
        tx.rollback()
    return Plan(found[0]["Plan"])


def explain_prepared(engine: Engine, prepare: Statement, run: Statement, *, analyze: bool = False) -> Plan:
    """The plan that serves any parameters: what a prepared statement runs by, once it has been used a few times."""
    options = "ANALYZE, BUFFERS, FORMAT JSON" if analyze else "FORMAT JSON"
    own = sa.create_engine(engine.url, poolclass=sa.NullPool)
    with own.connect() as connection, connection.begin() as tx:
        connection.exec_driver_sql("SET LOCAL plan_cache_mode = force_generic_plan")
        if run.settings:
            connection.exec_driver_sql(run.settings)
        connection.exec_driver_sql(prepare.text)
        found = connection.exec_driver_sql(f"EXPLAIN ({options}) {run.text}", run.parameters).scalar_one()
        tx.rollback()
    return Plan(found[0]["Plan"])


_JOBS = sa.text(
    """
    INSERT INTO tidemill.job (task, queue, rank, due_at, args)
    SELECT 'tests.kit.tasks.noop', 'queue' || i % :queues, i % :ranks, now() - (:rows - i) * interval '1 ms', '[]'
    FROM generate_series(1, :rows) AS i
    """
)
_RUNNING = sa.text(
    """
    INSERT INTO tidemill.job (task, queue, state, pass_key, recovery_time, claimed_at, claimed_by)
    SELECT 'tests.kit.tasks.noop', 'queue' || i % :queues, 'running', gen_random_uuid(),
           now() + interval '1 hour', now(), 'w' FROM generate_series(1, :rows) AS i
    """
)
_LOG = sa.text(
    """
    INSERT INTO tidemill.job_log
        (job_id, attempt, outcome, queue, task, args, kwargs, rank, max_attempts, enqueued_at, ended_at)
    SELECT i, 1, CASE WHEN i % 100 = 0 THEN 'failed' ELSE 'done' END::tidemill.job_outcome, 'jobs',
           'task' || i % 50, '[]', '{}', 0, 4, now(), now() - i * interval '1 second'
    FROM generate_series(1, :rows) AS i
    """
)


def fill(engine: Engine, waiting: int = 0, running: int = 0, log: int = 0, queues: int = 3, ranks: int = 1) -> None:
    """Rows in plenty, and statistics that know of them."""
    with engine.begin() as connection:
        connection.execute(_JOBS, {"rows": waiting, "queues": queues, "ranks": ranks})
        connection.execute(_RUNNING, {"rows": running, "queues": queues})
        connection.execute(_LOG, {"rows": log})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE tidemill.job, tidemill.job_log")
