"""Events are kept for a while, and until they are published (S14)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.outbox import cursor, retention
from tests.kit import events as kit

pytestmark = pytest.mark.usefixtures("made")


@pytest.fixture
def made(engine: Engine, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kit.create(engine)
    with kit.own_relay(monkeypatch):
        yield


def _over_age(session: Session) -> None:
    session.execute(sa.text("UPDATE tidemill.event SET saved_at = now() - interval '8 days'"))
    session.commit()


def _left(session: Session) -> list[int]:
    found = list(session.execute(sa.text("SELECT id FROM tidemill.event ORDER BY id")).scalars())
    session.rollback()
    return found


def test_what_is_over_age_goes(session: Session) -> None:
    kit.save_all(session, 5)
    _over_age(session)
    young = kit.save_all(session, 2)
    kit.publish()
    assert retention.run_once() == retention.Report(5)
    assert _left(session) == young
    assert retention.run_once() == retention.Report(0)


def test_in_bounded_passes(session: Session) -> None:
    kit.save_all(session, 5)
    _over_age(session)
    kit.publish()
    assert retention.run_once(3) == retention.Report(3, more=True)
    assert retention.run_once(3) == retention.Report(2)


def test_what_is_not_published_stays(session: Session) -> None:
    """However old it is: without a relay, and after it has begun."""
    ids = kit.save_all(session, 3)
    _over_age(session)
    assert retention.run_once() == retention.Report(0)
    kit.publish()
    assert retention.run_once() == retention.Report(3)
    more = kit.save_all(session, 2)
    _over_age(session)
    assert retention.run_once() == retention.Report(0)
    assert _left(session) == more
    assert not set(ids) & set(more)


def test_what_an_open_writer_may_still_hold_back_stays(session: Session, engine: Engine) -> None:
    """What committed beside it is kept as well: the snapshot does not say more."""
    with Session(engine) as late:
        held = kit.save(late, "late")
        kit.save_all(session, 2)
        _over_age(session)
        kit.publish()
        late.commit()
    _over_age(session)
    retention.run_once()
    assert held in _left(session)
    kit.publish()
    retention.run_once()
    assert _left(session) == []


def test_there_is_one_row_of_the_relay(session: Session) -> None:
    kit.publish()
    second = "INSERT INTO tidemill.event_relay (id, snapshot, cluster) VALUES (2, '3:3:', 1)"
    with pytest.raises(sa.exc.IntegrityError, match="event_relay_only_one"):
        session.execute(sa.text(second))


def test_what_comes_again_stays(session: Session) -> None:
    ids = kit.save_all(session, 4)
    kit.publish()
    _over_age(session)
    with Session(session.get_bind()) as tx:
        cursor.replay(tx, ids[2])
        tx.commit()
    retention.run_once()
    assert _left(session) == ids[2:]
    kit.publish()
    retention.run_once()
    assert _left(session) == []
