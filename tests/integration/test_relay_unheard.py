"""What nobody would get costs next to nothing, and what comes by the handful is published by the handful (S14)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import events
from app.events import Subscriber
from app.outbox import cursor, reading
from app.outbox.broker import Broker
from tests.kit import events as kit
from tests.kit.faults import Crashed, crash_at


@pytest.fixture(autouse=True)
def made(engine: Engine, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kit.create(engine)
    with kit.own_relay(monkeypatch):
        kit.publish()
        yield


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("what nobody gets is not read")

    for name in ("new", "these", "targeted"):
        monkeypatch.setattr(reading, name, read)


@pytest.mark.usefixtures("unread")
def test_what_nobody_would_get_is_passed_over(session: Session) -> None:
    ids = kit.save_all(session, 7)
    assert kit.publish(limit=3) == 0
    row = kit.state(session)
    assert (row.done_id, row.target, row.published) == (ids[-1], None, 0)
    assert kit.publish(limit=3) == 0
    assert kit.state(session).term == row.term


def test_who_subscribes_gets_what_is_saved_from_then_on_and_the_rest_by_a_replay(session: Session) -> None:
    before = kit.save_all(session, 4)
    kit.publish()
    events.subscribe("mail", "#")
    after = kit.save_all(session, 4)
    kit.publish()
    assert [event.sequence for event in kit.drained("mail")] == after
    assert cursor.replay(session, before[0])
    session.commit()
    kit.publish()
    assert [event.sequence for event in kit.drained("mail")] == before + after


def test_a_queue_that_no_subscription_names_is_heard(session: Session) -> None:
    with Subscriber.passing("#") as passing:
        assert passing.get(0.1) is None
        ids = kit.save_all(session, 3)
        assert kit.publish() == 3
        assert [event.sequence for event in islice(passing, 3)] == ids


def test_who_commits_late_is_not_passed_over(session: Session, engine: Engine) -> None:
    with Session(engine) as other:
        late = kit.save(other, "o-late")
        kit.save_all(session, 2)
        kit.publish()
        events.subscribe("mail", "#")
        other.commit()
    kit.publish()
    assert [event.sequence for event in kit.drained("mail")] == [late]


@pytest.mark.parametrize("point", ["outbox.before_move", "outbox.moved"])
def test_a_relay_dies_while_it_passes_over(point: str, session: Session) -> None:
    kit.save_all(session, 3)
    relay = kit.relay()
    with crash_at(point), pytest.raises(Crashed):
        kit.publish(relay)
    relay.close()
    events.subscribe("mail", "#")
    after = kit.save_all(session, 3)
    kit.publish()
    assert [event.sequence for event in kit.drained("mail")][-3:] == after
    assert not kit.publish()


def test_nothing_is_passed_over_in_a_broker_that_was_wiped_just_now(
    session: Session, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had a queue there has none now."""
    before = kit.state(session).snapshot

    def is_unheard(_: Broker) -> bool:
        kit.wipe(broker_url)
        return True

    monkeypatch.setattr(Broker, "is_unheard", is_unheard)
    kit.save_all(session, 2)
    relay = kit.relay()
    relay.run_once()
    assert relay.run_once().more
    relay.close()
    assert kit.state(session).snapshot == before


def test_the_last_of_what_is_new_asks_for_no_further_pass(session: Session) -> None:
    events.subscribe("mail", "#")
    kit.publish()
    kit.save_all(session, 7)
    relay = kit.relay()
    relay.run_once(limit=3)
    reports = [relay.run_once(limit=3) for _ in range(6)]
    assert [report.published for report in reports if report.published] == [3, 3, 1]
    assert all(report.more for report in reports if report.published)
    kit.save_all(session, 2)
    report = relay.run_once(limit=3)
    assert (report.published, report.more) == (2, False)
    relay.close()
