"""Storm control (R11): what is put back comes in its turn, few at once; and what is recorded of it (R7)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import counters
from app.claims.storm import delays
from app.db import transaction
from app.jobs.model import Job
from app.settings import settings
from recovery import decisions
from recovery import jobs as lost_jobs
from tests.kit import plans
from tests.kit import process_rows as r

RATE = 1000


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    random.seed(7)
    monkeypatch.setattr("recovery.jobs.settings", lambda: type("S", (), {"lease": timedelta(0)}))
    with r.world(monkeypatch):
        yield


def put_back(*queues: str) -> list[float]:
    with transaction() as session:
        return delays(session, queues, RATE)


def most_in_a_second(moments: Sequence[float]) -> int:
    return max(Counter(int(each) for each in moments).values())


def test_a_few_start_at_once() -> None:
    assert put_back("a") == [0.0]
    assert put_back(*["a"] * 50) == [0.0] * 50
    assert put_back() == []


def test_many_are_spread_at_random() -> None:
    found = put_back(*["a"] * 10 * RATE, "b")
    assert found[-1] == 0.0, "another queue is another queue"
    assert 9 < max(found) < 10
    assert most_in_a_second(found) < 1.3 * RATE
    assert len(set(found)) > 9 * RATE
    assert found[:-1] != sorted(found[:-1])


def test_several_sweeps_share_the_rate() -> None:
    # However many put back: the second goes on where the first has ended.
    found = [*put_back(*["a"] * 5 * RATE), *put_back(*["a"] * 5 * RATE)]
    assert max(found) > 8
    assert most_in_a_second(found) < 1.3 * RATE


def _lost_jobs(session: Session, count: int) -> None:
    plans.fill(session.get_bind(), running=count, queues=1)  # type: ignore[arg-type]
    session.execute(sa.update(Job).values(recovery_time=sa.func.now() - timedelta(minutes=1)))
    session.commit()


def test_lost_claims_come_back_in_their_turn(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    # R1, R7, R11
    monkeypatch.setenv("TIDEMILL_REPAIR_RATE", "100")
    settings.cache_clear()
    _lost_jobs(session, 1500)
    assert [lost_jobs.run_once().lost for _ in range(3)] == [1000, 500, 0]
    query = "SELECT extract(epoch FROM not_before - now())::float8 AS ahead FROM tidemill.job WHERE state = 'waiting'"
    moments = [row.ahead for row in r.rows(session, query)]
    assert len(moments) == 1500
    assert most_in_a_second([each for each in moments if each > 3]) < 180
    assert max(moments) > 10
    recorded = r.rows(session, "SELECT domain, finding, action, count(*) FROM tidemill.repair GROUP BY 1, 2, 3")
    assert [tuple(row) for row in recorded] == [("job", "lost_claim", "queued", 1500)]
    assert counters.read(session) == {"repaired.lost_claim": 1500}


def test_one_is_not_delayed(session: Session) -> None:
    _lost_jobs(session, 1)
    assert lost_jobs.run_once().lost == 1
    query = "SELECT not_before - now() <= interval '1 s' AS soon FROM tidemill.job"
    assert r.rows(session, query)[0].soon, "its own backoff, and no more"


def test_answers_that_did_not_come_are_counted_and_recorded(session: Session) -> None:
    # R2, R7
    ids = [r.one_of_toil() for _ in range(3)]
    for _ in ids:
        r.handed_out("toil")
    r.let_pass()
    assert decisions.run_once().restarted == 3
    assert counters.read(session) == {"work_timeout": 3, "repaired.work_timeout": 3}
    recorded = r.rows(session, "SELECT domain, subject, finding, action, operation_id FROM tidemill.repair ORDER BY id")
    assert [tuple(row) for row in recorded] == [
        ("process", f"{each}/2", "work_timeout", "queued", None) for each in ids
    ]


def test_decisions_come_back_in_their_turn(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    # R11
    monkeypatch.setenv("TIDEMILL_REPAIR_RATE", "1")
    settings.cache_clear()
    for _ in range(20):
        r.one_of_toil()
    while _in_work(session) < 20:
        r.handed_out_together("toil", 10)
    r.let_pass()
    assert decisions.run_once().restarted == 20
    query = "SELECT max(not_before) > now() + interval '8 s' AS late FROM tidemill.decision WHERE state = 'QUEUED'"
    assert r.rows(session, query)[0].late


def _in_work(session: Session) -> int:
    return int(r.rows(session, "SELECT count(*) AS found FROM tidemill.decision WHERE state = 'WORK'")[0].found)
