"""Dispatch rings for what waits, within free capacity (J4)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from kombu import Connection
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import dispatch, doorbell, workers
from app.claims import Lane
from app.db import autocommit, transaction
from app.dispatch import ROWS_A_TICKET, Report
from app.doorbell import Bell, Publisher
from app.jobs import enqueue, enqueue_many
from app.limits import configure
from app.registry import Waiting
from tests.kit.beating import alive
from tests.kit.rows import count
from tests.kit.tables import Table
from tests.kit.tasks import noop
from tests.kit.visit import Visit


class Noting(Publisher):
    """A broker in which so many tickets lie already."""

    def __init__(self, lying: int = 0) -> None:
        self.bells: list[Bell] = []
        self.lying = lying

    def publish(self, bells: Iterable[Bell]) -> None:
        self.bells += bells

    def length(self, _queue: str) -> int:
        return self.lying

    def close(self) -> None: ...

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        return (OSError,)


@pytest.fixture(autouse=True)
def _no_doorbell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorbell, "ring", lambda *_: None)


@pytest.fixture
def slots(engine: Engine) -> None:
    """Two workers with three slots in all, on `jobs`."""
    with autocommit() as connection:
        alive(connection, "w1", ["jobs", "other"], 2, 1)
        alive(connection, "w2", ["jobs"], 1, 2)


def rung(lying: int = 0, **words: Any) -> list[str]:
    publisher = Noting(lying)
    dispatch.run_once(publisher=publisher, **words)
    return sorted(bell.queue for bell in publisher.bells)


def test_nothing_waits_nothing_rings(session: Session, slots: None) -> None:
    publisher = Noting()
    assert dispatch.run_once(publisher=publisher) == Report()
    assert publisher.bells == []


def test_one_ticket_for_each_fifty_rows(session: Session, slots: None) -> None:
    # J4: of what nobody was told.
    enqueue(noop.s())
    assert rung() == ["jobs"]
    enqueue_many([noop.s()] * ROWS_A_TICKET)
    assert rung() == ["jobs"] * 2


def test_never_more_than_twice_the_slots_of_live_workers(session: Session, slots: None) -> None:
    enqueue_many([noop.s()] * 1000)
    enqueue_many([noop.s()] * 1000, queue="other")
    assert rung() == ["jobs"] * 6 + ["other"] * 4
    assert rung(lying=4) == ["jobs"] * 2
    assert rung(lying=100) == []


def test_without_any_worker_a_few_tickets_lie_ready(session: Session) -> None:
    enqueue_many([noop.s()] * 1000)
    assert rung() == ["jobs"] * 2


def test_a_worker_that_is_gone_does_not_count(session: Session, slots: None) -> None:
    enqueue_many([noop.s()] * 1000)
    session.execute(sa.update(workers.Worker).values(beat_at=sa.func.now() - workers.GONE))
    session.commit()
    assert rung() == ["jobs"] * 2


def test_what_is_not_ready_is_not_rung_for(session: Session, slots: None, jobs: Table) -> None:
    enqueue(noop.s(), eta=3600)
    jobs.put(session, 100, queue="jobs", not_before=sa.func.now() + timedelta(hours=1))
    jobs.put(session, 101, queue="jobs", state="parked")
    jobs.put(session, 102, queue="jobs", age=5)
    jobs.take(queue="jobs")
    assert rung() == []
    assert count(session) == 4


def test_ranks_of_a_queue_are_counted_together(session: Session, slots: None) -> None:
    for priority in (-5, 0, 5):
        enqueue_many([noop.s()] * 20, priority=priority)
    assert dispatch.run_once(publisher=Noting()) == Report(queues=1, waiting=60, rung=2)


@pytest.mark.parametrize(
    "limits", [{"paused": True}, {"max_parallel": 1}, {"rate": "1/h"}], ids=["paused", "full", "no tokens"]
)
def test_a_queue_that_allows_nothing_is_not_rung_for(
    session: Session, slots: None, jobs: Table, limits: dict[str, Any]
) -> None:
    # S15
    configure(session, "jobs", **limits)
    session.commit()
    for number in range(3):
        jobs.put(session, number, queue="jobs")
    jobs.take(queue="jobs")
    assert rung() == []
    configure(session, "jobs", paused=False, max_parallel=None, rate=None)
    session.commit()
    assert rung() == ["jobs"]


def test_no_more_tickets_than_claims_may_run(session: Session, slots: None) -> None:
    configure(session, "jobs", max_parallel=2)
    session.commit()
    enqueue_many([noop.s()] * 1000)
    assert rung() == ["jobs"] * 2


def test_only_the_queues_that_are_named(session: Session, slots: None) -> None:
    enqueue(noop.s())
    enqueue(noop.s(), queue="other")
    assert rung(queues=["other"]) == ["other"]
    assert rung(queues=[]) == []
    assert len(rung(limit=1)) == 1


def test_each_lane_is_rung_for(session: Session, visits: Table) -> None:
    # S16
    visits.put(session, 1, due_at=None, low_at=sa.func.now())
    visits.put(session, 2, queue="stage2")
    visits.put(session, 3, queue="stage2", due_at=None, low_at=sa.func.now())
    with transaction() as tx:
        found = dispatch.find_ready(tx, Waiting(Visit, (Lane.MAIN, Lane.LOW)))
    assert {(each.queue, each.lane, each.rows) for each in found} == {
        ("check", Lane.LOW, 1),
        ("stage2", Lane.MAIN, 1),
        ("stage2", Lane.LOW, 1),
    }


def test_a_broker_that_is_away_is_reported_and_nothing_is_lost(session: Session, slots: None) -> None:
    enqueue(noop.s())
    away = Publisher("redis://127.0.0.1:9/0")
    begun = time.monotonic()
    assert dispatch.run_once(publisher=away) == Report(queues=1, waiting=1, broker_away=True)
    assert time.monotonic() - begun < 30, "the other passes of the service must not wait"
    assert rung() == ["jobs"]


@pytest.fixture
def real(any_broker_url: str, any_database: None) -> Iterator[Publisher]:
    publisher = Publisher(any_broker_url)
    yield publisher
    publisher.close()


@pytest.fixture
def any_database(engine: Engine) -> None:
    """Made before the broker is asked for."""


def test_tickets_that_lie_in_the_broker_are_counted(real: Publisher, session: Session) -> None:
    assert real.length("jobs") == 0, "also where the broker does not know the queue"
    enqueue_many([noop.s()] * 1000)
    with Connection(real.connection.as_uri(include_password=True)) as worker:
        channel: Any = worker.default_channel
        channel.queue_declare(queue="jobs", durable=True, auto_delete=False)
    assert [dispatch.run_once(publisher=real).rung for _ in range(3)] == [2, 0, 0]
    assert real.length("jobs") == 2
