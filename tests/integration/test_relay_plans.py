"""The cost of a pass follows what it publishes, whatever lies in the table (S14)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import outbox
from app.outbox import cursor, listing, reading, retention
from app.outbox.replay import SLACK, first_since
from tests.kit import events as kit
from tests.kit.plans import Plan, Statement, captured, explain

ROWS = 60_000
LIMIT = 100


@pytest.fixture
def backlog(engine: Engine) -> Engine:
    kit.create(engine)
    kit.fill(engine, ROWS)
    return engine


def _only(found: list[Statement], words: str) -> Statement:
    (statement,) = [each for each in found if words in each.text]
    return statement


def _nothing_whole(plan: Plan) -> None:
    assert "event" not in plan.read_whole()


def test_an_empty_poll_beside_a_writer_that_stays_open(backlog: Engine, session: Session) -> None:
    """Two probes of the index by transaction, however long the writer has been at it."""
    cursor.begin(None)
    with Session(backlog) as late:
        kit.save(late, "late")
        session.execute(sa.text("UPDATE tidemill.event_relay SET snapshot = pg_current_snapshot()"))
        session.commit()
        kit.fill(backlog, 10)
        session.execute(sa.text("UPDATE tidemill.event_relay SET snapshot = pg_current_snapshot()"))
        session.commit()
        with captured(backlog) as found:
            state = cursor.poll()
        assert state is not None
        assert not state.new
        plan = explain(backlog, _only(found, "pg_snapshot_xip"), analyze=True)
        _nothing_whole(plan)
        assert plan.indexes() >= {"event_xid"}
        assert plan.pages < 40
        late.rollback()


@pytest.mark.parametrize("part", ["first", "middle", "last"])
def test_a_batch_of_a_long_backlog(backlog: Engine, session: Session, part: str) -> None:
    """No batch sorts, or reads, what is left."""
    cursor.begin(None)
    state = cursor.poll()
    assert state is not None
    assert cursor.aim(state)
    after = {"first": 0, "middle": ROWS // 2, "last": ROWS - LIMIT}[part]
    session.execute(sa.text("UPDATE tidemill.event_relay SET done_id = :after"), {"after": after})
    session.commit()
    state = cursor.poll()
    assert state is not None
    assert (state.done_id, state.last_id) == (after, ROWS)
    with captured(backlog) as found:
        batch = reading.targeted(state, LIMIT)
    assert [message.id for message in batch.messages] == list(range(after + 1, after + LIMIT + 1))
    plan = explain(backlog, _only(found, "json_build_object"), analyze=True)
    _nothing_whole(plan)
    assert plan.indexes() == {"event_pkey"}
    assert plan.pages < 40


def five_new(session: Session) -> tuple[list[int], cursor.State]:
    """Saved when all before them was published."""
    session.execute(sa.text("UPDATE tidemill.event_relay SET snapshot = pg_current_snapshot()"))
    session.commit()
    ids = kit.save_all(session, 5)
    state = cursor.poll()
    assert state is not None
    return ids, state


def test_what_is_new_after_a_long_history(backlog: Engine, session: Session) -> None:
    cursor.begin(None)
    ids, state = five_new(session)
    with captured(backlog) as found:
        new = reading.new(state, LIMIT)
        reading.these(new)
    assert new == ids
    for words in ("pg_snapshot_xip", "json_build_object"):
        plan = explain(backlog, _only(found, words), analyze=True)
        _nothing_whole(plan)
        assert plan.pages < 60


@pytest.mark.parametrize("writer", ["closed", "open"])
def test_passing_over_what_is_new_after_a_long_history(backlog: Engine, session: Session, writer: str) -> None:
    cursor.begin(None)
    with Session(backlog) as late:
        if writer == "open":
            kit.save(late, "late")
        ids, state = five_new(session)
        with captured(backlog) as found:
            assert cursor.passed_over(state)
        assert kit.state(session).done_id == ids[-1]
        plan = explain(backlog, _only(found, "pg_snapshot_xip"), analyze=True)
        _nothing_whole(plan)
        assert plan.indexes() >= {"event_xid"}
        assert plan.pages < 60
        late.rollback()


def test_ids_that_were_published_long_ago_are_passed_over_in_steps(backlog: Engine, session: Session) -> None:
    """A writer that was open for long commits what has the lowest id: what lies between is not read at once."""
    cursor.begin(None)
    values = {"after": 0, "last": ROWS}
    session.execute(
        sa.text(
            "UPDATE tidemill.event_relay SET snapshot = pg_current_snapshot(), target = pg_current_snapshot(),"
            " done_id = :after, last_id = :last"
        ),
        values,
    )
    session.commit()
    state = cursor.poll()
    assert state is not None
    with captured(backlog) as found:
        batch = reading.targeted(state, LIMIT)
    assert (list(batch.messages), batch.upto) == ([], reading.IDS)
    plan = explain(backlog, _only(found, "json_build_object"), analyze=True)
    _nothing_whole(plan)
    assert plan.pages < ROWS / 50


def test_replay_finds_its_first_by_halving(backlog: Engine, session: Session) -> None:
    session.execute(sa.text("UPDATE tidemill.event SET saved_at = now() - (60000 - id) * interval '1 second'"))
    session.commit()
    with backlog.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE tidemill.event")
    with captured(backlog) as found:
        first = first_since(session, datetime.now(UTC) - timedelta(seconds=1000) + SLACK)
    assert first is not None
    assert abs(first - (ROWS - 1000)) < 300
    assert len(found) < 30
    for statement in (found[1], found[-1]):
        plan = explain(backlog, statement, analyze=True)
        _nothing_whole(plan)
        assert plan.pages < 20


def test_retention_reads_what_it_removes(backlog: Engine, session: Session) -> None:
    cursor.begin(None)
    session.execute(sa.text("UPDATE tidemill.event_relay SET snapshot = pg_current_snapshot()"))
    session.execute(sa.text("UPDATE tidemill.event SET saved_at = now() - interval '8 days' WHERE id <= 1000"))
    session.commit()
    with captured(backlog) as found:
        assert retention.run_once(LIMIT) == retention.Report(LIMIT, more=True)
    plan = explain(backlog, _only(found, "DELETE"), analyze=True)
    _nothing_whole(plan)
    assert plan.indexes() == {"event_pkey"}


def test_the_lag_of_a_backlog(backlog: Engine, session: Session) -> None:
    assert listing.lag(session).waiting == listing.COUNTED
    session.rollback()
    outbox.run_once()
    lag = listing.lag(session)
    assert (lag.waiting, lag.published, lag.started) == (listing.COUNTED, 0, True)
