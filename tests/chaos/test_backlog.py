"""A healthy backlog of a hundred thousand processes: all of them are looked at, and nothing is done (R6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from recovery import decisions, graphs
from recovery import processes as late_processes
from tests.kit import backlog
from tests.kit import process_rows as r

PROCESSES = 100_000


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


@pytest.mark.chaos
@pytest.mark.parametrize("kind", ["absent", "slow", "paused"])
def test_a_backlog_of_a_hundred_thousand_is_left_alone(kind: str, engine: Engine) -> None:
    backlog.fill(engine, PROCESSES, analyze=True)
    if kind != "absent":
        (backlog.slow_actor if kind == "slow" else backlog.paused_actor)(engine)
    r.execute("UPDATE tidemill.decision SET due_at = pg_postmaster_start_time() + interval '1 us' WHERE number = 2")
    why, examined, more = Counter[str](), 0, True
    while more:
        report = graphs.run_once()
        why.update(report.why)
        examined, more = examined + report.examined, report.more
        assert (report.repaired, report.broken, report.busy, report.failed) == (0, 0, 0, 0)
    found = {"absent": "nobody_polls", "slow": "behind", "paused": "queue_paused"}[kind]
    assert examined == PROCESSES
    assert why == {"waits": PROCESSES, found: PROCESSES}
    assert decisions.run_once() == decisions.Report()
    assert late_processes.run_once() == late_processes.Report()
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM tidemill.repair")).scalar_one() == 0
