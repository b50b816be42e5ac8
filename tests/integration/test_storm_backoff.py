"""What died alone comes in its turn after its backoff, whichever attempt it was: over any second, no more than the rate
(R11)."""

from __future__ import annotations

import json
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from app.settings import settings
from recovery import decisions, visits
from recovery import jobs as lost_jobs
from recovery import runs as lost_runs
from stages.definition import queue_of
from tests.kit import process_rows as r
from triggers import Delta
from triggers.shape import shape

RATE, ROWS = 20, 300
#: At random moments there are more of them in one second than in another; and some at once.
MOST = 2 * RATE
CLAIM = "gen_random_uuid(), now() - interval '1 hour', now() - interval '1 hour', 'w' || i"
CLAIMED = "pass_key, recovery_time, claimed_at, claimed_by"


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    random.seed(7)
    monkeypatch.setenv("TIDEMILL_REPAIR_RATE", str(RATE))
    for module in ("jobs", "runs", "visits"):
        monkeypatch.setattr(f"recovery.{module}.settings", lambda: type("S", (), {"lease": timedelta(0)}))
    with r.world(monkeypatch):
        settings.cache_clear()
        yield


def most_in_any_second(moments: list[float]) -> int:
    moments.sort()
    return max(bisect_left(moments, each + 1) - number for number, each in enumerate(moments))


def moments_of(session: Session, table: str, waiting: str = "waiting") -> list[float]:
    query = f"SELECT extract(epoch FROM not_before - now())::float8 AS ahead FROM tidemill.{table} WHERE state = :state"  # noqa: S608
    return [row.ahead for row in r.rows(session, query, state=waiting)]


def _jobs(attempts: int) -> str:
    return f"""
        INSERT INTO tidemill.job (task, queue, state, attempts, max_attempts, {CLAIMED})
        SELECT 'tests.kit.tasks.noop', 'q', 'running', {attempts}, 99, {CLAIM} FROM generate_series(1, {ROWS}) AS i
        """  # noqa: S608 - numbers of this file


def _visits(attempts: int) -> str:
    return f"""
        INSERT INTO tidemill.stage_visit (kind, entity_id, stage, queue, shard, due_at, state, attempts, {CLAIMED})
        SELECT 'offer', 'e' || i, 'expire', '{queue_of("offer", "expire")}', tidemill.shard('e' || i), now(), 'running',
            {attempts}, {CLAIM} FROM generate_series(1, {ROWS}) AS i
        """  # noqa: S608 - numbers of this file


def _runs(failures: int) -> str:
    trigger = Delta("e", "p", "1d")
    words = f"'{json.dumps(trigger.to_json())}', '{shape(trigger)}'"
    return f"""
        WITH pool AS (INSERT INTO tidemill.reactive_pool (name) VALUES ('p')),
        task AS (
            INSERT INTO tidemill.reactive_task (name, module, pool, priority, trigger, shape, produces, first_run,
                on_lapse, max_failures, backoff, code, failures)
            SELECT 't' || i, 'm', 'p', 0, {words}, '[]', 'fire', 'drop', 99,
                '5s', 'c', {failures - 1} FROM generate_series(1, {ROWS}) AS i
        )
        INSERT INTO tidemill.run (task, queue, priority, generation, state, {CLAIMED})
        SELECT 't' || i, 'reactive.p', 0, 0, 'running', {CLAIM} FROM generate_series(1, {ROWS}) AS i
        """  # noqa: S608 - numbers of this file


WORK: dict[str, tuple[Callable[[int], str], Callable[[], Any]]] = {
    "job": (_jobs, lost_jobs.run_once),
    "stage_visit": (_visits, visits.run_once),
    "run": (_runs, lost_runs.run_once),
}


@pytest.mark.parametrize("attempts", [1, 3, 5])
@pytest.mark.parametrize("table", WORK)
def test_turns_come_after_the_backoff(session: Session, table: str, attempts: int) -> None:
    fill, sweep = WORK[table]
    session.connection().exec_driver_sql(fill(attempts))
    session.commit()
    assert sweep().lost == ROWS
    moments = moments_of(session, table)
    assert len(moments) == ROWS
    assert most_in_any_second(moments) < MOST
    assert max(moments) - min(moments) > 0.8 * ROWS / RATE


def test_decisions_too(session: Session) -> None:
    for _ in range(60):
        r.one_of_toil()
        r.handed_out("toil")
    r.execute("UPDATE tidemill.decision SET restarts = 2 WHERE state = 'WORK'")
    r.let_pass()
    assert decisions.run_once().restarted == 60
    moments = moments_of(session, "decision", "QUEUED")
    assert len(moments) == 60
    assert most_in_any_second(moments) < MOST
