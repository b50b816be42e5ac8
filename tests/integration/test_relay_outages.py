"""A relay that dies at any step, a broker that is wiped at any moment, two relays at once: a subscriber that dedups by
the sequence sees every save, in order (S14)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from kombu import Connection
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import events, faults, outbox
from app.outbox.broker import EXCHANGE, PREFIX
from app.outbox.relay import Relay
from app.settings import settings
from tests.kit import events as kit
from tests.kit.faults import Crashed, crash_at, installed, pause_at

STEPS = tuple(point for point in faults.POINTS if point.startswith("outbox."))
IN_BATCHES = ("outbox.read", "outbox.published", "outbox.before_move", "outbox.moved")
LIMIT = 3

pytestmark = pytest.mark.usefixtures("made")


@pytest.fixture
def made(engine: Engine, any_broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kit.create(engine)
    with kit.own_relay(monkeypatch):
        yield


def _seen(name: str = "mail", by: kit.Seen | None = None) -> kit.Seen:
    seen = by or kit.Seen()
    for event in kit.drained(name):
        seen(event)
    return seen


def _dies_at(point: str, time: int = 1) -> None:
    """A relay of its own, which is gone then."""
    relay = kit.relay()
    with crash_at(point, time), pytest.raises(Crashed):
        kit.publish(relay, limit=LIMIT)
    relay.close()


@pytest.mark.parametrize("time", [1, 2])
@pytest.mark.parametrize("point", IN_BATCHES)
def test_a_relay_dies(point: str, time: int, session: Session) -> None:
    events.subscribe("mail", "#")
    kit.save_all(session, 10)
    _dies_at(point, time)
    kit.save_all(session, 2)
    kit.publish(limit=LIMIT)
    assert _seen().handled == kit.written(session)


@pytest.mark.parametrize("point", STEPS)
def test_a_relay_dies_and_the_broker_is_wiped(point: str, session: Session, any_broker_url: str) -> None:
    """What the subscriber has had by then it passes over; all else comes."""
    events.subscribe("mail", "#")
    kit.save_all(session, 7)
    kit.publish(limit=LIMIT)
    seen = kit.Seen()
    with events.Subscriber("mail", "#", timeout=kit.SECONDS) as subscriber:
        for event, _ in zip(subscriber, range(4), strict=False):
            seen(event)
    kit.save_all(session, 5)
    kit.wipe(any_broker_url)
    _dies_at(point)
    kit.wipe(any_broker_url)
    kit.save_all(session, 2)
    kit.publish(limit=LIMIT)
    assert _seen(by=seen).handled == kit.written(session)


@pytest.mark.parametrize("point", IN_BATCHES)
def test_wiped_within_a_batch(point: str, session: Session, any_broker_url: str) -> None:
    """While the relay is connected, and believes that all is declared."""
    events.subscribe("mail", "#")
    kit.save_all(session, 5)
    kit.publish(limit=LIMIT)
    kit.save_all(session, 5)
    left = 2

    def wipe(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if reached == point and left == 0:
            kit.wipe(any_broker_url)

    with installed(wipe):
        for _ in range(30):
            outbox.run_once(LIMIT)
    kit.publish(limit=LIMIT)
    _well(session)


def _well(session: Session) -> None:
    """After what the backoff asks for."""
    relay = kit.relay()
    kit.publish(relay, limit=LIMIT)
    # An idle relay looks for its mark every second, and a new one at once.
    kit.save_all(session, 1)
    kit.publish(relay, limit=LIMIT)
    relay.close()
    seen = _seen()
    assert seen.handled == kit.written(session)
    assert kit.state(session).error is None


def test_wiped_while_nothing_is_saved(session: Session, any_broker_url: str) -> None:
    """Found within a second, before anything new."""
    events.subscribe("mail", "#")
    events.subscribe("search", "offer.#")
    relay = kit.relay()
    now = 0.0
    relay._monotonic = lambda: now
    ids = kit.save_all(session, 9)
    kit.publish(relay)
    kit.wipe(any_broker_url)
    assert relay.run_once().wiped is False
    now = 2.0
    reports = [relay.run_once(limit=LIMIT) for _ in range(6)]
    assert [report.wiped for report in reports][:2] == [True, False]
    assert sum(report.replayed for report in reports) == 9
    for name in ("mail", "search"):
        assert [event.sequence for event in kit.drained(name)] == ids
    relay.close()


def test_only_what_was_published_lately_comes_again(
    session: Session, any_broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By when it was published, not by when it was saved: a broker may have been away for longer than that."""
    events.subscribe("mail", "#")
    first = kit.save_all(session, 2)
    kit.publish()
    span = settings().events_replay

    def passes(time: timedelta) -> None:
        session.execute(sa.text("UPDATE tidemill.event_relay SET lately_at = lately_at - :time"), {"time": time})
        session.commit()

    passes(span * 1.5)
    second = kit.save_all(session, 2)
    session.execute(sa.text("UPDATE tidemill.event SET saved_at = saved_at - interval '1 day'"))
    session.commit()
    kit.publish()
    passes(span * 1.5)
    third = kit.save_all(session, 2)
    kit.publish()
    kit.wipe(any_broker_url)
    relay = kit.relay()
    kit.save_all(session, 1)
    kit.publish(relay)
    relay.close()
    told = [event.sequence for event in kit.drained("mail")]
    assert told[:4] == [*second, *third]
    assert not set(first) & set(told)


@pytest.mark.parametrize("point", IN_BATCHES)
def test_two_relays_at_once(point: str, session: Session) -> None:
    """One waits at a point while another publishes everything, and goes on: it has lost, and does no harm."""
    events.subscribe("mail", "#")
    kit.publish()
    kit.save_all(session, 8)
    frozen, other = kit.relay(), kit.relay()
    with ThreadPoolExecutor(1) as pool, pause_at(point) as paused:
        late = pool.submit(kit.publish, frozen, limit=LIMIT)
        paused.wait(kit.SECONDS)
        kit.publish(other, limit=LIMIT)
        kit.save_all(session, 3)
        kit.publish(other, limit=LIMIT)
        paused.go_on()
        late.result(kit.SECONDS)
    for each in (frozen, other):
        each.close()
    assert _seen().handled == kit.written(session)


@pytest.mark.parametrize("restored", ["outbox.declared", "outbox.wiped", "outbox.read", None])
def test_wiped_while_one_of_two_relays_is_frozen(restored: str | None, session: Session, broker_url: str) -> None:
    """It has read a batch, and would publish it before what the other repeats. (On RabbitMQ it has no connection.)"""
    events.subscribe("mail", "#")
    frozen, other = kit.relay(), kit.relay()
    kit.save_all(session, 5)
    kit.publish(other)
    kit.publish(frozen)
    kit.save_all(session, 5)
    with ThreadPoolExecutor(2) as pool, pause_at("outbox.read") as late:
        first = pool.submit(frozen.run_once)
        late.wait(kit.SECONDS)
        kit.wipe(broker_url)
        if restored is None:
            kit.publish(other)
        else:
            with pytest.raises(Crashed), crash_at(restored):
                kit.publish(other)
        late.go_on()
        assert first.result(kit.SECONDS).published == 0
    kit.publish(frozen)
    kit.publish(other)
    for each in (frozen, other):
        each.close()
    assert _seen().handled == kit.written(session)


def test_a_subscriber_that_is_there_before_the_relay_after_a_wipe(session: Session, broker_url: str) -> None:
    """It has its queue made again between the look for the mark and the batch."""
    events.subscribe("mail", "#")
    kit.save_all(session, 5)
    kit.publish()
    kit.save_all(session, 5)
    left = True

    def wipe(reached: str) -> None:
        nonlocal left
        if reached == "outbox.read" and left:
            left = False
            kit.wipe(broker_url)
            kit.drained("mail")

    with installed(wipe):
        kit.publish()
    assert _seen().handled == kit.written(session)


def test_a_broker_that_is_away(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, the row says why, and the next try comes later."""
    events.subscribe("mail", "#")
    kit.save_all(session, 3)
    now = 0.0
    away = Relay("redis://:hidden@127.0.0.1:1/0", lambda: now)
    reports = [away.run_once(), away.run_once(), away.run_once()]
    assert reports[0].more
    assert [report.away for report in reports[1:]] == [True, True]
    row = kit.state(session)
    assert row.error.startswith("the broker does not take events: ")
    assert "hidden" not in row.error
    since = row.failed_at
    now = 100.0
    assert away.run_once().away
    assert kit.state(session).failed_at == since
    kit.publish()
    row = kit.state(session)
    assert (row.error, row.failed_at) == (None, None)
    assert _seen().handled == kit.written(session)


def test_what_the_broker_refuses_holds_up_what_comes_after(session: Session, any_broker_url: str) -> None:
    """In order: those before it are published, it is named, and tried until the broker takes it."""
    if not any_broker_url.startswith("amqp"):
        return  # Redis refuses none but all
    events.subscribe("mail", "#")
    ids = kit.save_all(session, 6)
    kit.publish()
    kit.drained("mail")
    with Connection(any_broker_url) as connection:
        channel: Any = connection.default_channel
        full = {"x-max-length": 2, "x-overflow": "reject-publish"}
        channel.queue_declare(queue=f"{PREFIX}both", durable=True, auto_delete=False, arguments=full)
        channel.queue_bind(queue=f"{PREFIX}both", exchange=EXCHANGE.name, routing_key="#")
        ids = kit.save_all(session, 6)
        now = 0.0
        relay = Relay(monotonic=lambda: now)
        for _ in range(12):
            now += 10
            relay.run_once(limit=4)
        told = kit.state(session).error
        assert told.startswith(f"the broker refuses event {ids[2]} (offer o-")
        # Those before it once more at the most; those behind it came with the first batches, and come again in order.
        before = kit.Seen()
        for event in kit.drained("mail"):
            before(event)
        assert before.given.count(ids[0]) <= 2
        channel.queue_delete(queue=f"{PREFIX}both")
        for _ in range(12):
            now += 10
            relay.run_once(limit=4)
        relay.close()
    assert _seen(by=before).count == 6
    assert kit.state(session).error is None


def test_after_a_restore_nothing_is_skipped(session: Session) -> None:
    """The row speaks of another cluster, or of transactions to come: what may not have been published is."""
    events.subscribe("mail", "#")
    first = kit.save_all(session, 3)
    kit.publish()
    kit.drained("mail")
    second = kit.save_all(session, 3)
    later = session.execute(sa.text("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1000")).scalar_one()
    session.execute(
        sa.text("UPDATE tidemill.event SET xid = CAST(:later AS xid8) WHERE id > :last"),
        {"later": str(later), "last": first[-1]},
    )
    session.execute(
        sa.text("UPDATE tidemill.event_relay SET cluster = 1, snapshot = CAST(:ahead AS pg_snapshot)"),
        {"ahead": f"{later}:{later}:"},
    )
    session.commit()
    kit.publish()
    assert [event.sequence for event in kit.drained("mail")] == second
    third = kit.save_all(session, 2)
    kit.publish()
    assert [event.sequence for event in kit.drained("mail")] == third


def test_replay(session: Session) -> None:
    events.subscribe("mail", "#")
    ids = kit.save_all(session, 30)
    session.execute(
        sa.text("UPDATE tidemill.event SET saved_at = now() - (:last - id) * interval '10 minutes'"), {"last": ids[-1]}
    )
    session.commit()
    kit.publish()
    kit.drained("mail")
    since = datetime.now(UTC) - timedelta(minutes=95)
    first = outbox.replay(since)
    assert first == ids[-10]
    new = kit.save_all(session, 2)
    kit.publish(limit=LIMIT)
    assert [event.sequence for event in kit.drained("mail")] == [*ids[-10:], *new]
    row = kit.state(session)
    assert (row.replay_from, row.replay_to) == (None, None)


def test_replay_of_what_is_under_way(session: Session) -> None:
    """In the middle of a target: what it has published comes again, and nothing that it has not comes early."""
    events.subscribe("mail", "#")
    ids = kit.save_all(session, 9)
    while not kit.state(session) or kit.state(session).published == 0:
        outbox.run_once(LIMIT)
    outbox.replay(datetime.now(UTC) - timedelta(hours=1))
    kit.publish(limit=LIMIT)
    assert [event.sequence for event in kit.drained("mail")] == [*ids[:3], *ids]
