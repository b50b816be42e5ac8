"""What a sweep reads grows with what it takes, however many claims end at one moment, as those of workers that are
known to be dead do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app import claims
from app.jobs.model import Job
from tests.kit.plans import Plan, captured, explain

TAKEN, FEW, MANY = 100, 1_000, 50_000
#: A level more of the index, for each of its probes; to read all that end at one moment would be hundreds of times.
GROWTH = 2.5
FILL = sa.text(
    """
    INSERT INTO tidemill.job (task, queue, state, pass_key, recovery_time, claimed_at, claimed_by)
    SELECT 'tests.kit.tasks.noop', 'q', 'running', md5((i / :together)::text)::uuid,
        now() - interval '1 hour', now(), 'w' FROM generate_series(1, :rows) AS i
    """
)


def _plan(engine: Engine, rows: int, *, together: int) -> tuple[Plan, list[Any]]:
    """Of a sweep of so many claims that end at the same moment, of `together` rows each."""
    with engine.begin() as connection:
        connection.exec_driver_sql("TRUNCATE tidemill.job")
        connection.execute(FILL, {"rows": rows, "together": together})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE tidemill.job")
    with captured(engine) as statements, engine.connect() as connection:
        found = claims.overdue(connection, Job, TAKEN, timedelta(0))
        connection.rollback()
    assert len(found) == TAKEN
    return explain(engine, statements[-1], analyze=True), found


@pytest.mark.parametrize("together", [1, 10, 500])
def test_claims_that_end_at_one_moment_are_told_apart_by_index(engine: Engine, together: int) -> None:
    # R1
    few, _ = _plan(engine, FEW, together=together)
    many, found = _plan(engine, MANY, together=together)
    assert many.pages <= GROWTH * few.pages, (few.pages, many.pages)
    assert many.read_whole() == set()
    probes = [node for node in many.nodes() if node.get("Alias") == "other" and "Index Cond" in node]
    assert any("pass_key" in node["Index Cond"] for node in probes), many.root
    assert {row.in_batch for row in found} == {together > 1}
