"""Edges of the relay: subscriptions that come and go while it works, and a restored database (S14)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import events
from app.outbox import reading
from app.outbox.cursor import State
from tests.kit import events as kit


@pytest.fixture(autouse=True)
def relay(engine: Engine, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kit.create(engine)
    with kit.own_relay(monkeypatch):
        yield


def save(session: Session, entity_id: str) -> None:
    kit.save(session, entity_id)
    session.commit()


def drained(name: str) -> list[str]:
    return [each.id for each in kit.drained(name)]


def test_a_subscription_that_ended_begins_anew(session: Session) -> None:
    events.subscribe("mail", "#")
    save(session, "o-1")
    kit.publish()
    assert events.unsubscribe("mail")
    events.subscribe("mail", "#")
    for entity_id in ("o-2", "o-3"):
        save(session, entity_id)
        kit.publish()
    assert drained("mail") == ["o-2", "o-3"]


def test_what_is_saved_after_a_subscription_is_not_missed(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay has read the subscriptions, and not yet what is new."""
    events.subscribe("both", "#")
    save(session, "o-1")
    really, come = reading.new, [True]

    def new(state: State, limit: int) -> list[int]:
        if come:
            come.clear()
            events.subscribe("mail", "#")
            save(session, "o-2")
        return really(state, limit)

    monkeypatch.setattr(reading, "new", new)
    kit.publish()
    assert drained("both") == ["o-1", "o-2"]
    assert drained("mail") == ["o-2"]


def test_what_was_not_published_before_a_restore_is_published_after_it(engine: Engine, session: Session) -> None:
    """The numbers of transactions are those of another cluster, and all of them lie ahead of this one."""
    events.subscribe("mail", "#")
    kit.publish()
    with Session(engine) as other:
        kit.save(other, "o-1")
        save(session, "o-2")
        kit.publish()
        assert drained("mail") == ["o-2"]
        other.commit()
    ahead = 10_000_000
    session.execute(
        sa.text("UPDATE tidemill.event SET xid = ((xid::text::bigint) + :ahead)::text::xid8"), {"ahead": ahead}
    )
    low, high, open_ = (
        session.execute(sa.text("SELECT snapshot::text FROM tidemill.event_relay")).scalar_one().split(":")
    )
    moved = ",".join(str(int(each) + ahead) for each in open_.split(",") if each)
    session.execute(
        sa.text("UPDATE tidemill.event_relay SET cluster = 42, snapshot = cast(:snapshot AS pg_snapshot)"),
        {"snapshot": f"{int(low) + ahead}:{int(high) + ahead}:{moved}"},
    )
    session.commit()
    kit.publish()
    assert drained("mail") == ["o-1", "o-2"]
