"""Every save is published, once or more, in the order of its entity (S14)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from kombu import Connection, Queue
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import events, outbox
from app.outbox import reading
from app.outbox.broker import EXCHANGE
from app.settings import settings
from tests.kit import events as kit

pytestmark = pytest.mark.usefixtures("made")


@pytest.fixture
def made(engine: Engine, any_broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kit.create(engine)
    with kit.own_relay(monkeypatch):
        yield


def test_what_is_saved_arrives(session: Session) -> None:
    """S14."""
    events.subscribe("mail", "offer.*")
    number = kit.save(session, "o-1", entity={"status": "new", "note": "é\u2028\\u0000"}, state=b"\x00\xff" * 90)
    session.commit()
    assert kit.publish() == 1
    (event,) = kit.drained("mail", "offer.*")
    assert (event.sequence, event.kind, event.id, event.stage, event.version) == (number, "offer", "o-1", "expire", 1)
    assert event.fields == ("status",)
    assert event.entity == {"status": "new", "note": "é\u2028\\u0000"}
    assert event.state is not None
    assert (event.state.type_url, event.state.value) == ("type.googleapis.com/test.State", b"\x00\xff" * 90)
    assert event.state_version == 1
    assert event.key == ("offer", "o-1")
    saved_at = session.execute(sa.text("SELECT saved_at FROM tidemill.event")).scalar_one()
    assert event.saved_at == saved_at


def test_a_message_says_what_it_was_published_to(session: Session) -> None:
    """S14: also to who consumes by kombu alone, from a queue of its own."""
    with Connection(settings().resolved_events_url()) as connection:
        queue = Queue("mine", EXCHANGE, routing_key="offer.*")(connection.channel())
        queue.declare()
        kit.save(session, "o-1")
        session.commit()
        assert kit.publish() == 1
        message = queue.get()
        assert message is not None
        message.ack()
        queue.delete()
    assert message.headers == {"tidemill_exchange": "tidemill.saved", "tidemill_routing_key": "offer.expire"}


def test_no_state_is_none(session: Session) -> None:
    events.subscribe("mail", "#")
    kit.save(session, "o-1")
    session.commit()
    kit.publish()
    (event,) = kit.drained("mail")
    assert (event.state, event.state_version) == (None, 0)


def test_only_what_the_patterns_match(session: Session) -> None:
    events.subscribe("mail", "offer.expire", "order.*")
    events.subscribe("search", "#")
    for kind, stage in (("offer", "expire"), ("offer", "price"), ("order", "pay"), ("parcel", "pay")):
        kit.save(session, "1", kind=kind, stage=stage)
    session.commit()
    kit.publish()
    told = [(event.kind, event.stage) for event in kit.drained("mail", "offer.expire", "order.*")]
    assert told == [("offer", "expire"), ("order", "pay")]
    assert len(kit.drained("search")) == 4


def test_in_batches_in_order(session: Session) -> None:
    """More than a batch: by a target, in the order of ids."""
    events.subscribe("mail", "#")
    ids = kit.save_all(session, 23, 4)
    assert kit.publish(limit=5) == 23
    assert [event.sequence for event in kit.drained("mail")] == ids
    row = kit.state(session)
    assert (row.target, row.last_id, row.done_id, row.published, row.error) == (None, None, ids[-1], 23, None)
    ids = kit.save_all(session, 3)
    assert kit.publish(limit=5) == 3
    assert [event.sequence for event in kit.drained("mail")] == ids


def test_a_batch_is_bounded_by_its_bytes(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BYTES", 1000)
    for read in (reading._these, reading._targeted):
        read.cache_clear()
    events.subscribe("mail", "#")
    ids = [kit.save(session, f"o-{number}", entity={"text": "x" * 600}) for number in range(5)]
    session.commit()
    reports = [outbox.run_once() for _ in range(8)]
    assert [each.published for each in reports if each.published] == [2, 2, 1]
    assert [event.sequence for event in kit.drained("mail")] == ids
    for read in (reading._these, reading._targeted):
        read.cache_clear()


def test_few_statements_serve_all_numbers_of_events(session: Session) -> None:
    """Each is kept: a relay that finds another number each time would grow for hours."""
    reading._these.cache_clear()
    ids = [kit.save(session, f"o-{number}") for number in range(40)]
    session.commit()
    for count in range(1, len(ids) + 1):
        batch = reading.these(ids[:count])
        assert ([each.id for each in batch.messages], batch.upto) == (ids[:count], ids[count - 1])
    assert reading._these.cache_info().currsize == len((1, 2, 4, 8, 16, 32, 64))


def test_a_large_entity_arrives(session: Session) -> None:
    events.subscribe("mail", "#")
    text = "x" * 3_000_000
    kit.save(session, "o-1", entity={"text": text})
    session.commit()
    kit.publish()
    (event,) = kit.drained("mail", seconds=10)
    assert event.entity == {"text": text}


def test_an_entity_that_no_broker_takes_is_left_out(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not hold up the others."""
    monkeypatch.setattr(reading, "LARGEST", 1000)
    reading._these.cache_clear()
    events.subscribe("mail", "#")
    kit.save(session, "o-1", entity={"text": "x" * 2000}, state=b"1")
    kit.save(session, "o-2", entity={"text": "x"})
    session.commit()
    kit.publish()
    first, second = kit.drained("mail")
    assert (first.entity, first.state) == (None, None)
    assert second.entity == {"text": "x"}
    reading._these.cache_clear()


def test_what_was_there_before_the_relay_is_published(session: Session, engine: Engine) -> None:
    """The first start ever."""
    kit.fill(engine, 30)
    events.subscribe("mail", "#")
    assert kit.state(session) is None
    assert kit.publish(limit=7) == 30
    assert len(kit.drained("mail")) == 30


@pytest.mark.parametrize("first", [0, 1])
def test_whoever_commits_late_is_published(session: Session, engine: Engine, first: int) -> None:
    """Ids are drawn in one order and committed in another, in both."""
    events.subscribe("mail", "#")
    kit.publish()
    with Session(engine) as one, Session(engine) as other:
        ids = [kit.save(one, "o-1"), kit.save(other, "o-2")]
        writers = [one, other]
        writers[first].commit()
        assert kit.publish() == 1
        assert kit.publish() == 0
        writers[1 - first].commit()
        assert kit.publish() == 1
    assert [event.sequence for event in kit.drained("mail")] == [ids[first], ids[1 - first]]


@pytest.mark.parametrize("limit", [2, 500])
def test_a_writer_that_stays_open_stalls_nobody(session: Session, engine: Engine, limit: int) -> None:
    events.subscribe("mail", "#")
    kit.publish()
    with Session(engine) as late:
        held = kit.save(late, "late")
        ids = kit.save_all(session, 7)
        assert kit.publish(limit=limit) == 7
        late.commit()
    more = kit.save_all(session, 1)
    assert kit.publish(limit=limit) == 2
    assert [event.sequence for event in kit.drained("mail")] == [*ids, held, *more]


def test_who_rolls_back_is_not_published(session: Session, engine: Engine) -> None:
    events.subscribe("mail", "#")
    kit.publish()
    with Session(engine) as other:
        kit.save(other, "o-1")
        other.rollback()
    kit.save_all(session, 1)
    assert kit.publish() == 1


def test_nothing_to_publish_needs_no_broker(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = kit.relay("redis://127.0.0.1:1/0")
    reports = [relay.run_once() for _ in range(3)]
    assert not any(report.away for report in reports)
    assert kit.state(session).error is None


def test_a_subscription_is_made_while_nothing_is_saved(session: Session) -> None:
    relay = kit.relay()
    clock = iter(range(0, 1000, 5))
    relay._monotonic = lambda: float(next(clock))
    kit.save_all(session, 1)
    kit.publish(relay)
    events.subscribe("mail", "#")
    relay.run_once()
    kit.save_all(session, 1)
    kit.publish(relay)
    assert len(kit.drained("mail")) == 1
    events.subscribe("mail", "order.*")
    kit.publish(relay)
    kit.save(session, "1", kind="order")
    kit.save(session, "1", kind="offer")
    session.commit()
    kit.publish(relay)
    assert [event.kind for event in kit.drained("mail", "order.*")] == ["order"]
    relay.close()


def test_patterns_change_while_no_relay_runs(session: Session) -> None:
    """The one that comes next knows nothing of the old ones but what the row says."""
    events.subscribe("mail", "#")
    kit.publish()
    events.subscribe("mail", "offer.*")
    events.subscribe("mail", "order.*", "offer.pay")
    events.subscribe("mail", "order.*", "offer.pay")
    for kind in ("order", "offer"):
        kit.save(session, "1", kind=kind)
    session.commit()
    relay = kit.relay()
    kit.publish(relay)
    relay.close()
    assert [event.kind for event in kit.drained("mail", "order.*", "offer.pay")] == ["order"]
    former = session.execute(sa.text("SELECT former FROM tidemill.event_subscription")).scalar_one()
    assert former == ["#", "offer.*"]


def test_after_the_end_of_a_subscription_nothing_comes(session: Session) -> None:
    events.subscribe("mail", "#")
    kit.save_all(session, 1)
    kit.publish()
    assert events.unsubscribe("mail") is True
    kit.save_all(session, 1)
    kit.publish()
    events.subscribe("mail", "#")
    kit.publish()
    assert kit.drained("mail") == []
