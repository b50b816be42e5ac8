"""A subscriber gets event after event, loses none, and handles each once if it wants to (S14)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from kombu import Connection
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import events
from app.errors import BadRequest, NotFound
from app.events import Event, Subscriber
from app.outbox.broker import PREFIX
from tests.conftest import child_environment
from tests.kit import events as kit
from tests.kit.process import Processes
from tests.kit.waiting import wait_until
from tidemill import transaction

pytestmark = pytest.mark.usefixtures("made")


@pytest.fixture
def made(engine: Engine, any_broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kit.create(engine)
    with kit.own_relay(monkeypatch):
        events.subscribe("mail", "#")
        yield


def _published(session: Session, count: int) -> list[int]:
    ids = kit.save_all(session, count)
    kit.publish()
    return ids


def _next(subscriber: Subscriber) -> Event:
    event = subscriber.get(kit.SECONDS)
    assert event is not None
    return event


def test_asking_for_the_next_acknowledges_the_last(session: Session) -> None:
    ids = _published(session, 3)
    with Subscriber("mail", "#") as subscriber:
        told = [event.sequence for event, _ in zip(subscriber, range(2), strict=False)]
        assert told == ids[:2]
    assert [event.sequence for event in kit.drained("mail")] == ids[2:]


def test_what_raises_comes_again(session: Session) -> None:
    ids = _published(session, 3)
    told: list[int] = []

    def work() -> None:
        for event in subscriber:
            told.append(event.sequence)
            if event.sequence == ids[1]:
                raise ZeroDivisionError

    with Subscriber("mail", "#", timeout=kit.SECONDS) as subscriber:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                work()
    assert told == [ids[0], *[ids[1]] * 3]
    assert [event.sequence for event in kit.drained("mail")] == ids[1:]


def test_what_is_not_acknowledged_comes_again(session: Session) -> None:
    (number,) = _published(session, 1)
    with Subscriber("mail", "#") as subscriber:
        assert [_next(subscriber).sequence for _ in range(3)] == [number] * 3
        event = _next(subscriber)
        event.ack()
        event.ack()
        assert subscriber.get(0.2) is None
    assert kit.drained("mail") == []


def test_it_ends_when_told_to(session: Session) -> None:
    subscriber = Subscriber("mail", "#")
    threading.Timer(0.2, subscriber.stop).start()
    assert list(subscriber) == []
    subscriber.close()


def test_one_of_two_works_and_the_other_takes_over(session: Session) -> None:
    """In order also when it does."""
    ids = _published(session, 4)
    first, second = Subscriber("mail", "#"), Subscriber("mail", "#")
    event = _next(first)
    assert second.get(0.5) is None
    event.ack()
    assert _next(first).sequence == ids[1]
    first.close()
    told = []
    for _ in range(3):
        event = _next(second)
        told.append(event.sequence)
        event.ack()
    second.close()
    assert told == ids[1:]


_READING = """
import os, threading
from app.events import Subscriber
with Subscriber("mail", "#") as subscriber:
    for event in subscriber:
        print("got", event.sequence, flush=True)
        if event.sequence == int(os.environ["LAST"]):
            threading.Event().wait()
"""


def test_a_consumer_that_is_killed_loses_nothing(
    session: Session, processes: Processes, database_url: str, any_broker_url: str
) -> None:
    ids = _published(session, 6)
    env = child_environment(database_url, any_broker_url, LAST=str(ids[2]))
    consumer = processes.python(_READING, env, "consumer")
    consumer.wait_for(f"got {ids[2]}", kit.SECONDS)
    consumer.kill()
    told = []
    with Subscriber("mail", "#") as subscriber:
        for _ in range(4):
            event = _next(subscriber)
            told.append(event.sequence)
            event.ack()
    assert told == ids[2:]


def test_two_subscriptions_do_not_meet(session: Session) -> None:
    """What one of them is given back, the other does not get once more."""
    events.subscribe("search", "#")
    ids = _published(session, 3)
    with Subscriber("mail", "#") as subscriber:
        _next(subscriber)
    assert [event.sequence for event in kit.drained("search")] == ids
    assert [event.sequence for event in kit.drained("mail")] == ids


def test_it_survives_a_wiped_broker(session: Session, any_broker_url: str) -> None:
    with kit.listening("mail") as seen:
        _published(session, 5)
        kit.all_seen(session, seen)
        kit.wipe(any_broker_url)
        relay = kit.relay()
        kit.save_all(session, 5)
        kit.publish(relay)
        kit.all_seen(session, seen)
        relay.close()


def test_the_broker_comes_later(session: Session, any_broker_url: str) -> None:
    """No program has to wait for it by itself."""
    subscriber = Subscriber("mail", "#", url="redis://127.0.0.1:1/0")
    assert subscriber.get(0.2) is None
    subscriber._url = any_broker_url
    _published(session, 1)
    assert _next(subscriber).kind == "offer"
    subscriber.close()


@pytest.mark.parametrize("body", [b"no JSON", b'{"sequence": 1}', b"\xff\xff", b'"\\ud800"'])
def test_what_is_no_event_is_dropped(
    body: bytes, session: Session, any_broker_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    kit.publish()
    with Connection(any_broker_url) as connection:
        connection.Producer().publish(
            body, exchange="", routing_key=f"{PREFIX}mail", content_type="application/json", content_encoding="binary"
        )
    ids = _published(session, 1)
    assert [event.sequence for event in kit.drained("mail")] == ids
    assert "drops what is no event" in caplog.text
    assert kit.drained("mail", seconds=0.5) == []


def test_who_looks_on_leaves_nothing_behind(session: Session, any_broker_url: str) -> None:
    subscriber = Subscriber.passing("offer.#")
    assert subscriber.get(0.1) is None
    ids = _published(session, 2)
    assert [_next(subscriber).sequence] == ids[:1]
    subscriber.close()
    with Connection(any_broker_url) as connection:
        channel: Any = connection.default_channel
        with pytest.raises(connection.channel_errors):
            channel.queue_declare(queue=f"{PREFIX}{subscriber.name}", passive=True)


# Exactly once


def test_first_time(session: Session) -> None:
    ids = _published(session, 2)
    one, other = (event for event in kit.drained("mail"))
    with transaction() as tx:
        assert events.first_time(tx, "mail", one)
        assert not events.first_time(tx, "mail", one)
        assert events.first_time(tx, "search", one)
    with Session(session.get_bind()) as failing:
        assert events.first_time(failing, "mail", other)
    with transaction() as tx:
        assert not events.first_time(tx, "mail", one)
        assert events.first_time(tx, "mail", other)
    assert (one.sequence, other.sequence) == tuple(ids)


def test_what_comes_late_is_passed_over(session: Session) -> None:
    """A replay begins before what was handled."""
    kit.save(session, "o-1")
    kit.save(session, "o-1")
    session.commit()
    kit.publish()
    first, second = kit.drained("mail")
    with transaction() as tx:
        assert events.first_time(tx, "mail", second)
        assert not events.first_time(tx, "mail", first)


@pytest.mark.parametrize("commits", [True, False])
def test_two_ask_at_once(session: Session, engine: Engine, *, commits: bool) -> None:
    """One waits for the other; if that fails, it is its turn."""
    _published(session, 1)
    (event,) = kit.drained("mail")

    def ask() -> bool:
        with transaction() as tx:
            return events.first_time(tx, "mail", event)

    with ThreadPoolExecutor(1) as pool, Session(engine) as one:
        assert events.first_time(one, "mail", event)
        other = pool.submit(ask)
        wait_until(lambda: _waiting(session), kit.SECONDS)
        if commits:
            one.commit()
        else:
            one.rollback()
        assert other.result(kit.SECONDS) is not commits


def _waiting(session: Session) -> int:
    locked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    found = session.execute(sa.text(locked)).scalar_one()
    session.rollback()
    return int(found)


# Subscriptions


def test_a_subscription_in_a_transaction_that_fails(session: Session) -> None:
    events.subscribe("search", "#", session=session)
    session.rollback()
    with pytest.raises(NotFound, match="no subscription 'search'"):
        events.unsubscribe("search")


def test_a_subscription_without_patterns() -> None:
    with pytest.raises(BadRequest):
        events.subscribe("search")
