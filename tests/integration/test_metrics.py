"""What `/metrics` says, read from real rows, each kind of work done by the code that workers run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session

from app import limits, timings, workers
from app.alarm import alarm
from app.calling import CeleryCalls
from app.celery import app as celery_app
from app.db import autocommit, transaction
from app.duties import Duties
from app.jobs.run import Runner
from app.metrics import catalogue, exposition
from app.metrics.exposition import PARTS, Exposition, shared
from app.stopwatch import Piece, Series, stopwatch
from recovery.operations.model import OPERATION
from tests.kit import plans, reactive, scrape, stages_rows, tasks
from tests.kit.reactive import ORDERS, day
from tests.kit.scrape import Scrape
from tests.kit.service import Follower
from tidemill import Delta, enqueue
from triggers import missed
from triggers.model import MissedWindow

LEASE = timedelta(seconds=60)


@pytest.fixture(autouse=True)
def _afresh(database_url: str, broker_url: str) -> Iterator[None]:
    scrape.forget()
    yield
    scrape.forget()


def runner() -> Runner:
    alarm.install()
    return Runner(CeleryCalls(celery_app, "tests"), "tests/1", LEASE, lambda: False)


def depth(found: Scrape, queue: str, state: str, kind: str = "job", lane: str = "main") -> float | None:
    return found.value("queue_depth", kind=kind, queue=queue, lane=lane, state=state)


# Queues, and what work takes


def test_what_waits(session: Session) -> None:
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    for _ in range(3):
        enqueue(tasks.noop.s(), queue="mails", eta=long_ago)
    enqueue(tasks.noop.s(), queue="mails", priority=7)
    enqueue(tasks.noop.s(), queue="mails", eta=3600)
    enqueue(tasks.noop.s(), queue="others", eta=3600)
    found = scrape.scrape()
    assert (depth(found, "mails", "ready"), depth(found, "mails", "later")) == (4, 1)
    assert (depth(found, "others", "ready"), depth(found, "others", "later")) == (0, 1)
    oldest = found.value("queue_oldest_age_seconds", kind="job", queue="mails", lane="main")
    assert oldest is not None
    assert 300 <= oldest < 900
    assert found.value("queue_oldest_age_seconds", kind="job", queue="others", lane="main") == 0
    assert found.value("queue_paused", queue="mails") is None


def test_what_ran_and_how_long_it_had_waited() -> None:
    enqueue(tasks.noop.s(), eta=datetime.now(UTC) - timedelta(minutes=2))
    enqueue(tasks.noop.s())
    enqueue(tasks.fail.s("x"))
    runner().serve("jobs", 100)
    found = scrape.scrape()
    noop = {"kind": "job", "task": tasks.noop.name, "outcome": "done"}
    assert found.value("work_duration_seconds_count", **noop) == 2
    assert found.value("work_duration_seconds_bucket", **noop, le="+Inf") == 2
    failed = {"kind": "job", "task": tasks.fail.name, "outcome": "failed"}
    assert found.value("work_duration_seconds_count", **failed) == 1
    jobs = {"kind": "job", "queue": "jobs"}
    assert found.value("queue_wait_seconds_count", **jobs) == 3
    assert found.value("queue_wait_seconds_bucket", **jobs, le="60") == 2
    assert found.value("queue_wait_seconds_bucket", **jobs, le="300") == 3
    waited = found.value("queue_wait_seconds_sum", **jobs)
    assert waited is not None
    assert waited > 119
    assert depth(found, "jobs", "parked") == 1
    assert depth(found, "jobs", "ready") is None
    again = scrape.scrape()
    assert again.value("work_duration_seconds_count", **noop) == 2


def test_runs_and_visits_are_measured_too() -> None:
    with reactive.world() as world:
        good = world.task("good", Delta(*ORDERS, "1d"))
        bad = world.task("bad", Delta(*ORDERS, "1d"), reactive.fail)
        reactive.advance(day(1))
        world.poll()
        assert depth(scrape.scrape(), "reactive.default", "ready", kind="run") == 2
        while world.serve():
            pass
    with stages_rows.world() as stages:
        stages.stage("publish")
        stages.asked("a")
        assert depth(scrape.scrape(), "stage.offer.publish", "ready", kind="visit") == 1
        stages.serve("publish")
    found = scrape.scrape()
    for task, outcome in ((good, "done"), (bad, "failed")):
        assert found.value("work_duration_seconds_count", kind="run", task=task, outcome=outcome) == 1
    assert found.value("queue_wait_seconds_count", kind="run", queue="reactive.default") == 2
    visits = {dict(each.series._asdict())["name"]: each.times for each in _read() if each.series.measure == "work"}
    assert visits["stage.offer.system"] == 1
    assert found.value("queue_wait_seconds_count", kind="visit", queue="stage.offer.publish") == 1


def _read() -> list[Piece]:
    with transaction() as session:
        return [each for each in timings.read(session, 1000) if each.series.kind == "visit"]


def test_queues_that_are_shut(session: Session) -> None:
    limits.configure(session, "mails", paused=True)
    limits.rest(session, "stage.offer.score", "it does not answer")
    workers.beat(session, "w1", ["mails", "jobs"], 4, 1)
    workers.beat(session, "w2", ["jobs"], 2, 1)
    workers.beat(session, "gone", ["jobs"], 8, 1)
    session.execute(sa.update(workers.Worker).where(workers.Worker.name == "gone").values(beat_at=day(1)))
    session.commit()
    found = scrape.scrape()
    assert [found.value("queue_paused", queue=name) for name in ("mails", "stage.offer.score")] == [1, 0]
    assert [found.value("queue_resting", queue=name) for name in ("mails", "stage.offer.score")] == [0, 1]
    assert (found.value("workers"), found.value("worker_slots")) == (2, 6)
    assert [found.value("queue_slots", queue=name) for name in ("mails", "jobs")] == [4, 6]


def test_deep_queues_are_counted_by_index_and_in_bounds(engine: Engine) -> None:
    plans.fill(engine, waiting=40_000, running=100, queues=2)
    with plans.captured(engine) as statements:
        found = scrape.scrape()
    assert depth(found, "queue0", "ready") == 10_000
    assert depth(found, "queue1", "running") == 50
    asked = [each for each in statements if "tidemill.job" in each.text and each.text.lstrip().startswith("WITH")]
    assert asked
    for each in asked:
        assert "job" not in plans.explain(engine, each).read_whole(), each.text


# What grows for ever


def test_what_several_add_at_once_is_added_up() -> None:
    pieces = [Piece(Series("work", "job", name, "done"), le, 2, 0.5) for name in ("b", "a") for le in (1.0, 0.5)]
    for order in (pieces, pieces[::-1]):
        with autocommit() as connection:
            timings.add(connection, order)
    with transaction() as session:
        assert [(each.series.name, each.le, each.times, each.seconds) for each in timings.read(session, 10)] == [
            ("a", 0.5, 4, 1.0),
            ("a", 1.0, 4, 1.0),
            ("b", 0.5, 4, 1.0),
            ("b", 1.0, 4, 1.0),
        ]
        assert len(timings.read(session, 3)) == 3


def test_what_cannot_be_saved_is_kept(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    stopwatch.worked("job", "a", "done", 0.1)
    session.execute(sa.text("SET LOCAL transaction_read_only = on"))
    with pytest.raises(sa.exc.DBAPIError):
        timings.hand_in(session)
    session.rollback()
    timings.hand_in(session)
    session.commit()
    assert [each.times for each in timings.read(session, 10)] == [1]


def test_series_that_are_silent_are_forgotten_as_a_whole(session: Session) -> None:
    old, new = Series("work", "job", "old", "done"), Series("work", "job", "new", "done")
    timings.add(session, [Piece(each, le, 1, 1.0) for each in (old, new) for le in (0.5, 1.0)])
    session.execute(sa.update(timings.TIMING).values(at=day(1)))
    timings.add(session, [Piece(new, 0.5, 1, 1.0)])
    session.commit()
    with autocommit() as connection:
        assert timings.forget(connection, timedelta(days=30)) == 2
    assert [(each.series, each.le, each.times) for each in timings.read(session, 9)] == [(new, 0.5, 2), (new, 1.0, 1)]


def test_missed_windows_are_counted_with_the_commit(session: Session) -> None:
    # T23
    def miss(tx: Session, task: str) -> None:
        missed.lapsed(tx, task, 1, day(1), "too late")

    with transaction() as tx:
        miss(tx, "marts.orders")
        miss(tx, "marts.orders")
        miss(tx, "marts.items")
    miss(session, "marts.items")
    session.rollback()
    session.execute(sa.delete(MissedWindow))
    session.commit()
    found = scrape.scrape()
    assert found.value("missed_windows_total", task="marts.orders") == 2
    assert found.value("missed_windows_total", task="marts.items") == 1


# What follows, leads, and stands still


def test_how_far_the_control_table_is_followed() -> None:
    with reactive.world():
        assert scrape.scrape().value("capture_lag_seconds") is None
        follower = Follower()
        follower.rest()
        found = scrape.scrape()
        assert (found.value("capture_lag_seconds"), found.value("capture_waiting_changes")) == (0, 0)
        reactive.advance(day(1))
        found = scrape.scrape()
        assert found.value("capture_waiting_changes") == 1
        lag = found.value("capture_lag_seconds")
        assert lag is not None
        assert lag > 0
        follower.rest()
        assert scrape.scrape().value("capture_waiting_changes") == 0


def test_who_leads() -> None:
    duties = Duties()
    assert duties.hold("relay")
    try:
        found = scrape.scrape()
        assert found.value("duty_leaders", duty="relay") == 1
        assert found.value("duty_leaders", duty="dispatch") == 0
        age = found.value("duty_leader_age_seconds", duty="relay")
        assert age is not None
        assert 0 <= age < 600
    finally:
        duties.drop()


def test_tasks_and_operations_that_stand_still() -> None:
    with reactive.world() as world:
        first, second = (world.task(name, Delta(*ORDERS, "1d")) for name in ("a", "b"))
        world.task("c", Delta(*ORDERS, "1d"))
        reactive.set_task(first, quarantined_at=day(1))
        reactive.set_task(second, paused=True)
        live: dict[str, Any] = {"kind": "process.restart", "selection": {}, "parameters": {}}
        for state, why in (("RUNNING", None), ("PAUSED", None), ("PAUSED", "10 of the last 20 items failed")):
            reactive.execute(sa.insert(OPERATION).values(state=state, why=why, **live))
        found = scrape.scrape()
    states = {word: found.value("reactive_tasks", state=word) for word in ("active", "paused", "quarantined")}
    assert states == {"active": 1, "paused": 1, "quarantined": 1}
    assert found.names("reactive_task_quarantined", "task") == {first}
    assert {word: found.value("operations", state=word) for word in ("running", "paused", "halted")} == {
        "running": 1,
        "paused": 1,
        "halted": 1,
    }


def test_the_oldest_transaction_is_that_of_another(engine: Engine) -> None:
    with engine.connect() as connection:
        connection.execute(sa.select(1))
        found = scrape.scrape()
        oldest = found.value("database_oldest_transaction_seconds")
        assert oldest is not None
        assert oldest > 0
    assert (scrape.scrape().value("database_connections") or 0) >= 1


# The scrape itself


def test_a_part_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_session: Session) -> list[Any]:
        raise ProgrammingError("SELECT", {}, Exception("no such thing"))

    monkeypatch.setitem(PARTS, "queues", broken)
    found = scrape.scrape()
    assert found.value("scrape_errors", part="queues") == 1
    assert found.value("scrape_errors", part="serving") == 0
    assert found.value("workers") == 0


def test_one_reading_serves_all_who_ask_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[int] = []
    plain = exposition.sample

    def counted() -> Any:
        times.append(1)
        return plain()

    monkeypatch.setattr(exposition, "sample", counted)
    clock = [100.0]
    found = Exposition(lambda: clock[0])
    assert found.read() == found.read()
    assert len(times) == 1
    clock[0] += 1.5
    found.read()
    assert len(times) == 2


def test_what_takes_long_is_read_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]

    def slow() -> list[Any]:
        clock[0] += 2.0
        return []

    monkeypatch.setattr(exposition, "sample", slow)
    found = Exposition(lambda: clock[0])
    found.read()
    clock[0] += 19.0
    found.read()
    assert clock[0] == 121.0
    clock[0] += 1.5
    found.read()
    assert clock[0] == 124.5


def test_every_series_is_one_of_the_catalogue() -> None:
    enqueue(tasks.noop.s())
    runner().serve("jobs", 100)
    known = {
        name: set(metric.labels) | ({"le"} if name.endswith("_bucket") else set())
        for metric in catalogue.METRICS.values()
        for name in metric.series
    }
    for name, labels in scrape.scrape().series():
        assert known[name] == labels, name
    assert shared.read().startswith(b"# HELP tidemill_")
