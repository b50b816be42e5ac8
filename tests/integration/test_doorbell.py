"""The doorbell: best effort, never waited for (J4)."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from app import doorbell
from app.doorbell import MOST_NAMES, Bell, Doorbell, Publisher
from app.embedded import OwnServers
from tests.kit.waiting import never_within, wait_until

BELL = Bell("jobs", "mail.send")
#: On a busy machine. If each ring waited for the broker, the rings of a test would take hours.
AT_ONCE = 30.0


@pytest.fixture
def broker(broker_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(broker_url, socket_timeout=60) as found:
        yield found


@pytest.fixture
def bell(broker_url: str) -> Iterator[Doorbell]:
    found = Doorbell()
    yield found
    found.flush(60)


def ring_many(bell: Doorbell, names: int = 2 * MOST_NAMES) -> float:
    """How long all of them took."""
    begun = time.monotonic()
    for number in range(names):
        bell.ring(Bell(f"queue{number}", "t"))
    return time.monotonic() - begun


def heard(bell: Doorbell, broker: Any, queue: str) -> bool:
    bell.ring(Bell(queue, "t"))  # dropped as long as the set is full
    return bool(broker.llen(queue))


def test_a_ticket_names_a_queue_and_carries_no_work(bell: Doorbell, broker: Any) -> None:
    bell.ring(BELL)
    assert bell.flush(60)
    message = json.loads(broker.lpop("jobs"))
    headers = message["headers"]
    # The name is for people: what the user's task does when it is called is not done for a ticket.
    assert (headers["task"], headers["shadow"]) == (doorbell.GENERIC, "mail.send")
    assert headers[doorbell.TICKET] == {"queue": "jobs", "lane": "main", "take": doorbell.TAKE}
    assert json.loads(base64.b64decode(message["body"]))[:2] == [[], {}]
    assert headers["eta"] is None


def test_a_ticket_expires(bell: Doorbell, broker: Any) -> None:
    bell.ring(BELL)
    assert bell.flush(60)
    expires = datetime.fromisoformat(json.loads(broker.lpop("jobs"))["headers"]["expires"])
    left = expires - datetime.now(UTC)
    assert timedelta(seconds=doorbell.EXPIRES_SECONDS / 2) < left <= timedelta(seconds=doorbell.EXPIRES_SECONDS)


def test_a_burst_collapses(broker_url: str, broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = threading.Event()
    publish = Publisher.publish

    def held(self: Publisher, bells: Any) -> None:
        begin.wait(60)
        publish(self, bells)

    monkeypatch.setattr(Publisher, "publish", held)
    bell = Doorbell()
    for _ in range(1000):
        bell.ring(BELL)
    begin.set()
    assert bell.flush(60)
    assert broker.llen("jobs") <= 2


def test_lanes_are_rung_apart(bell: Doorbell, broker: Any) -> None:
    bell.ring(Bell("jobs", "t"))
    bell.ring(Bell("jobs", "t", "low"))
    assert bell.flush(60)
    lanes = [json.loads(text)["headers"][doorbell.TICKET]["lane"] for text in broker.lrange("jobs", 0, -1)]
    assert sorted(lanes) == ["low", "main"]


def test_while_the_broker_is_down_nobody_waits_and_memory_is_bounded(
    servers: OwnServers, bell: Doorbell, broker: Any
) -> None:
    servers.broker.kill()
    bell.ring(BELL)
    wait_until(lambda: bell._quiet_until > time.monotonic(), 60, "the broker is known to be down")
    assert ring_many(bell) < AT_ONCE
    assert len(bell._waiting) <= MOST_NAMES
    begun = time.monotonic()
    bell.flush(60)
    assert time.monotonic() - begun < AT_ONCE, "a program that ends does not wait for a broker that is down"
    servers.broker.start()
    wait_until(lambda: heard(bell, broker, "after"), 60, "the broker is rung at again")


def test_while_the_broker_is_frozen_nobody_waits(servers: OwnServers, bell: Doorbell, broker: Any) -> None:
    bell.ring(BELL)
    assert bell.flush(60)
    servers.broker.pause()
    begun = time.monotonic()
    bell.ring(BELL)
    assert ring_many(bell) < AT_ONCE
    assert len(bell._waiting) <= MOST_NAMES
    assert not bell.flush(0.2), "it says that it does not know"
    assert time.monotonic() - begun < AT_ONCE
    servers.broker.resume()
    wait_until(lambda: heard(bell, broker, "after"), 60, "the broker is rung at again")


def test_the_thread_outlives_what_nobody_expected(
    broker_url: str, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell, "PAUSE_SECONDS", 0.01)
    failing = [ValueError("surprise"), RuntimeError("again")]
    publish = Publisher.publish

    def surprised(self: Publisher, bells: Any) -> None:
        if failing:
            raise failing.pop()
        publish(self, bells)

    monkeypatch.setattr(Publisher, "publish", surprised)
    bell = Doorbell()
    for _ in range(3):
        bell.ring(BELL)
        wait_until(lambda: not bell._waiting and not bell._busy)
    wait_until(lambda: broker.llen("jobs"))


def test_no_thread_until_the_first_ring(broker_url: str) -> None:
    bell = Doorbell()
    assert bell.flush(0)
    assert bell._thread is None


def test_the_password_of_the_broker_is_in_no_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from app.settings import settings

    monkeypatch.setenv("TIDEMILL_BROKER_URL", "redis://:s3cret@127.0.0.1:9/0")
    settings.cache_clear()
    bell = Doorbell()
    bell.ring(BELL)
    wait_until(lambda: "does not answer" in caplog.text, 60)
    assert "s3cret" not in caplog.text
    assert never_within(lambda: "s3cret" in caplog.text, 0.05)
    settings.cache_clear()
