"""`tidemill events`, and what `status` and `doctor` say of it (S14)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import events, outbox
from app.audit import Audit
from app.db import transaction
from tests.kit import events as kit
from tests.kit.cli import Tidemill, one_sentence

pytestmark = pytest.mark.usefixtures("made")


@pytest.fixture
def made(engine: Engine, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kit.create(engine)
    with kit.own_relay(monkeypatch):
        yield


def test_status_before_anything(tidemill: Tidemill) -> None:
    said = tidemill("events status").out
    assert "no relay has ever run here" in said
    assert "nothing waits; 0 published so far, 0 subscriptions" in said
    assert "Events" not in tidemill("status").out
    told = tidemill("events status --json").data
    assert (told["started"], told["waiting"], told["error"]) == (False, 0, None)


def test_what_nobody_hears_is_relayed_and_not_published(tidemill: Tidemill, session: Session) -> None:
    kit.publish()
    kit.save_all(session, 2)
    kit.publish()
    said = tidemill("events status").out
    assert "nothing waits; 0 published so far, 0 subscriptions\nwhat nobody would get is passed over" in said
    assert [each["relayed"] for each in tidemill("events list --json").data["events"]] == [True, True]


def test_status_of_what_waits(tidemill: Tidemill, session: Session) -> None:
    events.subscribe("mail", "#")
    kit.save_all(session, 2)
    kit.publish()
    kit.save_all(session, 3)
    session.execute(sa.text("UPDATE tidemill.event SET saved_at = now() - interval '2 minutes'"))
    session.execute(sa.text("UPDATE tidemill.event_relay SET error = 'no', failed_at = now() - interval '5 minutes'"))
    session.commit()
    told = tidemill("events status --json").data
    assert (told["waiting"], told["published"], told["error"]) == (3, 2, "no")
    assert told["oldest"] >= 120
    said = tidemill("events status").out
    assert "3 not published, the first for 2min" in said
    assert "! no (for 5min" in said
    assert tidemill("status --json").data["events"]["waiting"] == 3
    assert "3 not published" in tidemill("status").out
    finding = _finding(tidemill)
    assert finding["level"] == "fail"
    assert "3 not published, the first for 2min" in finding["detail"]


def _finding(tidemill: Tidemill) -> dict[str, str]:
    (found,) = [each for each in tidemill("doctor --json").data["findings"] if each["check"] == "events"]
    return dict(found)


def test_doctor_of_what_is_late(tidemill: Tidemill, session: Session) -> None:
    kit.save_all(session, 1)
    assert _finding(tidemill)["level"] == "ok"
    session.execute(sa.text("UPDATE tidemill.event SET saved_at = now() - interval '2 minutes'"))
    session.commit()
    assert _finding(tidemill)["level"] == "warn"
    assert "start a scheduler" in _finding(tidemill)["advice"]
    kit.publish()
    assert _finding(tidemill)["level"] == "ok"


def test_list(tidemill: Tidemill, session: Session) -> None:
    ids = kit.save_all(session, 3)
    kit.publish()
    session.execute(sa.text("UPDATE tidemill.event SET saved_at = now() - interval '1 day'"))
    last = kit.save(session, "5", kind="order", stage="pay")
    session.commit()
    found = tidemill("events list --json").data["events"]
    assert [(each["sequence"], each["relayed"]) for each in found] == [
        (last, False),
        *((number, True) for number in reversed(ids)),
    ]
    for words in ("--kind order", "--stage pay", "--entity 5", "--since 1h", "--limit 1"):
        found = tidemill(f"events list --json {words}").data["events"]
        assert [each["sequence"] for each in found] == [last]
    assert "order" in tidemill("events list").out
    assert "there are no such events" in tidemill("events list --kind parcel").out


def test_replay(tidemill: Tidemill, session: Session) -> None:
    assert "there is no event since" in tidemill("events replay --since 1h --yes").out
    kit.save_all(session, 4)
    assert one_sentence(tidemill("events replay --since 1h --yes"), "nothing was published yet")
    kit.publish()
    assert "Nobody can be asked" in tidemill("events replay --since 1h").err
    assert "4 events from sequence" in tidemill("events replay --since 1h --yes").out
    assert "published again just now: up to 4 events" in tidemill("events status").out
    assert outbox.run_once().replayed == 4


def test_after_a_restore_nothing_new_is_taken_for_old(tidemill: Tidemill, session: Session) -> None:
    # S14: a backup draws the numbers again that lost saves had.
    events.subscribe("mail", "#")
    seen = kit.Seen()
    ids = kit.save_all(session, 6)
    kit.publish()
    for event in kit.drained("mail")[:5]:
        seen(event)
    kit.save(session, "lost")
    session.commit()
    kit.publish()
    session.execute(sa.text("DELETE FROM tidemill.event WHERE id > :last"), {"last": ids[2]})
    session.execute(sa.text("SELECT setval('tidemill.event_id_seq', :last)"), {"last": ids[2]})
    session.commit()
    assert "Nobody can be asked" in tidemill("events restored").err
    said = tidemill("events restored --yes").out
    assert "the queues of 1 subscription are empty" in said
    new = kit.save_all(session, 3)
    assert min(new) > 10**15
    assert f"numbered from {new[0]} on" in said
    kit.publish()
    given = kit.drained("mail")
    assert {event.sequence for event in given} == {*ids[:3], *new}, "nothing of what is lost"
    before = seen.count
    for event in given:
        seen(event)
    assert seen.count == before + 3
    assert "numbered from" in tidemill("events restored --yes").out
    assert kit.save_all(session, 1)[0] > new[-1] + 1
    assert session.execute(sa.select(sa.func.count()).where(Audit.action == "event.restored")).scalar_one() == 2


def test_a_restore_without_a_broker_says_so(
    tidemill: Tidemill, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    events.subscribe("mail", "#")
    monkeypatch.setenv("TIDEMILL_EVENTS_URL", "redis://127.0.0.1:1/0")
    assert one_sentence(tidemill("events restored --yes"), "the broker is away: empty it before anything is started")
    assert kit.save_all(session, 1)[0] > 10**15


def test_subscriptions(tidemill: Tidemill, session: Session) -> None:
    assert "nobody is subscribed" in tidemill("events subscriptions").out
    assert "mail gets offer.*, order.pay from now on" in tidemill("events subscribe mail offer.* order.pay").out
    (found,) = tidemill("events subscriptions --json").data["subscriptions"]
    assert (found["name"], found["patterns"]) == ("mail", ["offer.*", "order.pay"])
    assert "offer.* order.pay" in tidemill("events subscriptions").out
    assert one_sentence(tidemill("events subscribe mail of*er"), "is no pattern")
    assert tidemill("events unsubscribe mail").code != 0
    assert "mail gets nothing more" in tidemill("events unsubscribe mail --yes").out
    assert one_sentence(tidemill("events unsubscribe mail --yes"), "no subscription 'mail'")
    audited = [tuple(row) for row in session.execute(sa.select(Audit.action, Audit.subject).order_by(Audit.id))]
    assert audited == [("event.subscribe", "mail"), ("event.unsubscribe", "mail")]


def test_tail(tidemill: Tidemill) -> None:
    saved = threading.Event()

    def save() -> None:
        while not saved.is_set():
            with transaction() as tx:
                kit.save(tx, "o-1")
            kit.publish()
            saved.wait(0.1)

    writer = threading.Thread(target=save)
    writer.start()
    try:
        said = tidemill("events tail offer.* --count 2 --seconds 60")
        told = tidemill("events tail --count 1 --seconds 60 --json")
    finally:
        saved.set()
        writer.join(kit.SECONDS)
    assert said.out.count("offer.expire  o-1  version") == 2
    assert json.loads(told.out)["kind"] == "offer"
