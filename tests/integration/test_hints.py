"""What wakes the loop before its time: a hint of the database, or the order to stop; and what the hints cost."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import hints as module
from app.hints import CHANNEL, Hints, Stop
from tests.kit import reactive as kit
from tests.kit.reactive import day
from tests.kit.waiting import pause, wait_until
from triggers import Delta

#: What nobody waits for to its end: half of it tells whether somebody did.
LONG = 60.0


@pytest.fixture
def stop() -> Iterator[Stop]:
    found = Stop()
    yield found
    os.close(found._read)
    os.close(found._write)


@pytest.fixture
def hints(engine: Engine, stop: Stop) -> Iterator[Hints]:
    found = Hints(stop)
    found.wait(0)
    yield found
    found.close()
    if found._engine is not None:
        found._engine.dispose()


def _waited(hints: Hints, act: Any, seconds: float = LONG) -> tuple[bool, float]:
    """What the wait said, and how long it took."""
    thread = threading.Timer(0.05, act)
    thread.start()
    begun = time.monotonic()
    found = hints.wait(seconds)
    took = time.monotonic() - begun
    thread.join()
    return found, took


def test_a_commit_wakes_whoever_waits(hints: Hints) -> None:
    pause(0.03)
    found, took = _waited(hints, lambda: kit.advance(day(1)))
    assert (found, took < LONG / 2) == (True, True)


def test_a_task_that_changes_wakes_whoever_waits(hints: Hints) -> None:
    with kit.world() as world:
        world.declare("a", Delta("e", "p", "1d"))
        found, took = _waited(hints, world.sync)
        assert (found, took < LONG / 2) == (True, True)


def test_what_is_rolled_back_wakes_nobody(hints: Hints, session: Session) -> None:
    session.execute(sa.text("SELECT tidemill.advance('e', 'p', '2026-01-01Z')"))
    session.rollback()
    assert not hints.wait(0.2)


def test_the_order_to_stop_ends_the_wait(hints: Hints, stop: Stop) -> None:
    found, took = _waited(hints, stop.set)
    assert (found, took < LONG / 2, stop.is_set()) == (False, True, True)
    assert _waited(hints, lambda: None)[1] < LONG / 2, "and every one after it"


def test_a_signal_handler_may_give_it(stop: Stop) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: stop.set())
    try:
        timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        timer.start()
        assert stop.wait(LONG)
        for _ in range(70_000):
            stop.set()  # more often than the pipe holds: never waits
    finally:
        signal.signal(signal.SIGUSR1, before)


def _notified(engine: Engine, act: Any) -> int:
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        driver.autocommit = True
        with driver.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")
        act()
        heard = 0
        while select.select([driver], [], [], 0.2)[0]:
            driver.poll()
            heard += len(driver.notifies)
            driver.notifies.clear()
        connection.invalidate()
    return heard


def test_a_burst_of_commits_is_hinted_at_a_bounded_rate(engine: Engine) -> None:
    # A NOTIFY in every transaction would make all of them wait for each other.
    commits, begun = 400, time.monotonic()
    taken = list[float]()

    def burst() -> None:
        for number in range(commits):
            kit.advance(day(1) + timedelta(seconds=number), ("e", "p"))
        taken.append(time.monotonic() - begun)

    heard = _notified(engine, burst)
    assert 1 <= heard <= taken[0] / 0.02 + 2, (heard, taken)


def test_the_hint_is_given_again_when_the_clock_was_set_back(engine: Engine, session: Session) -> None:
    far = "SELECT setval('tidemill.ctl_hinted', (extract(epoch FROM now()) * 1000)::bigint + 86400000)"
    session.execute(sa.text(far))
    session.commit()
    assert _notified(engine, lambda: kit.advance(day(1))) == 1


def test_a_listener_that_lost_its_connection_comes_back(
    hints: Hints, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AWAY_SECONDS", 0.1)
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidemill-hints'"
    session.execute(sa.text(end))
    session.commit()
    lost = hints._connection
    wait_until(lambda: not hints.wait(0.05) and hints._connection is not lost, 60)
    wait_until(lambda: hints.wait(0.05) or hints._connection is not None, 60)
    found, took = _waited(hints, lambda: kit.advance(day(1)))
    assert (found, took < LONG / 2) == (True, True)


def test_without_a_database_it_waits_its_time(hints: Hints, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the driver says, also in the middle of it: no hint is worth the loop."""
    hints.close()
    monkeypatch.setattr(hints, "_away_until", 0.0)

    class Refusing:
        def raw_connection(self) -> Any:
            raise RuntimeError("gone between the connection and its first word")

    monkeypatch.setattr(hints, "_engine", Refusing())
    begun = time.monotonic()
    assert not hints.wait(0.2)
    assert time.monotonic() - begun >= 0.19
    monkeypatch.setattr(hints, "_engine", None)
