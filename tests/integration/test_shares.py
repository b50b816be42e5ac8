"""How schedulers share the shards out (S13), and that what is rung for a share is claimed from it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import claims, dispatch, doorbell, shares, tasks
from app.claims import Cursor, Lane
from app.db import transaction
from app.dispatch import Part
from app.doorbell import Bell, Publisher
from app.jobs import enqueue
from app.scheduler import REPORT_SECONDS, Share
from app.shares import Scheduler, share
from stages.model import StageVisit
from tests.kit.tasks import noop

SHARDS = 16


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, nobody is gone until a test says so."""
    monkeypatch.setattr(shares, "GONE", timedelta(minutes=10))


class Noting(Publisher):
    def __init__(self) -> None:
        self.bells: list[Bell] = []

    def publish(self, bells: Iterable[Bell]) -> None:
        self.bells += bells

    def length(self, _queue: str) -> int:
        return 0

    def close(self) -> None: ...

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        return (OSError,)


def offered(session: Session, *ids: str) -> dict[str, int]:
    """Entities that wait for a stage, with their shards."""
    visits = sa.func.tidemill.offer_visits(
        "thing",
        sa.cast(list(ids), sa.ARRAY(sa.Text)),
        sa.cast(["count"] * len(ids), sa.ARRAY(sa.Text)),
        sa.cast([datetime.now(UTC)] * len(ids), sa.ARRAY(sa.TIMESTAMP(timezone=True))),
    )
    session.execute(sa.select(visits))
    session.execute(sa.update(StageVisit).values(due_at=sa.func.now() - timedelta(seconds=1)))
    session.commit()
    return {row.entity_id: row.shard for row in session.execute(sa.select(StageVisit.entity_id, StageVisit.shard))}


@given(st.sets(st.text(min_size=1), min_size=1, max_size=40), st.integers(1, 64))
def test_the_shares_are_all_shards_and_no_shard_twice(names: set[str], count: int) -> None:
    # S13
    live = sorted(names)
    taken = [found for name in live if (found := share(name, live, count)) is not None]
    assert [shard for first, last in taken for shard in range(first, last + 1)] == list(range(count))
    sizes = [last - first + 1 for first, last in taken]
    assert max(sizes) - min(sizes) <= 1


def test_a_scheduler_that_is_silent_leaves_its_shards_to_the_others(engine: Engine, session: Session) -> None:
    # S13
    publisher = Noting()
    clock = [0.0]
    one, two = (Share(publisher, name, lambda: clock[0]) for name in ("a", "b"))
    one.run_once()
    assert one.shards == (0, SHARDS - 1)
    two.run_once()
    clock[0] += REPORT_SECONDS
    one.run_once()
    assert (one.shards, two.shards) == ((0, 7), (8, 15))
    session.execute(sa.update(Scheduler).where(Scheduler.name == "a").values(beat_at=sa.func.now() - shares.GONE))
    session.commit()
    clock[0] += REPORT_SECONDS
    two.run_once()
    assert two.shards == (0, SHARDS - 1)
    # It was frozen, and goes on.
    one.run_once()
    assert one.shards == (0, 7)
    one.leave()
    clock[0] += REPORT_SECONDS
    two.run_once()
    assert two.shards == (0, SHARDS - 1)


def test_a_scheduler_without_shards_rings_for_none(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    offered(session, "a", "b")
    with transaction() as tx:
        shares.report(tx, "another")
    monkeypatch.setattr(shares, "share", lambda *_: None)
    publisher = Noting()
    assert Share(publisher, "superfluous").run_once() == dispatch.Report()
    assert publisher.bells == []


def test_a_share_rings_for_its_shards_only(session: Session) -> None:
    # S13
    where = offered(session, *(f"k{number}" for number in range(50)))
    enqueue(noop.s())
    first = {entity for entity, shard in where.items() if shard <= 7}
    publisher = Noting()
    report = dispatch.run_once(publisher=publisher, part=Part.SHARDED, shards=(0, 7))
    assert (report.queues, report.waiting) == (1, len(first))
    assert {(bell.queue, bell.shards) for bell in publisher.bells} == {("stage.thing.count", (0, 7))}
    whole = Noting()
    dispatch.run_once(publisher=whole, part=Part.WHOLE)
    assert {(bell.queue, bell.shards) for bell in whole.bells} == {("jobs", None)}
    both = Noting()
    dispatch.run_once(publisher=both)
    assert {bell.queue for bell in both.bells} == {"jobs", "stage.thing.count"}


def test_a_claim_takes_from_its_shards_only(session: Session) -> None:
    # S13
    where = offered(session, *(f"k{number}" for number in range(50)))
    for shards in ((0, 7), (8, 15)):
        cursor = Cursor(StageVisit, "stage.thing.count", Lane.MAIN, guarded=True, shards=shards)
        claim = claims.take(cursor, 100, worker="w", lease=timedelta(seconds=60))
        mine = {entity for entity, shard in where.items() if shards[0] <= shard <= shards[1]}
        assert {row.entity_id for row in claim.rows} == mine
        assert mine


@pytest.mark.parametrize("shards", [[0], [1, 0], [-1, 3], [0, 4096], ["0", "1"], "0-7", {"first": 0}, None, [0, 1, 2]])
def test_a_ticket_with_shards_that_make_no_sense_is_dropped(shards: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("it was served")

    monkeypatch.setattr(tasks, "_server", refuse)
    ticket = {"queue": "stage.thing.count", "take": 1, "shards": shards}
    assert tasks.serve(None, "stage.thing.count", ticket, "host") == "nonsense"  # type: ignore[arg-type]


def test_a_ticket_carries_the_shards_that_it_was_rung_for() -> None:
    bell = Bell("stage.thing.count", "shop.count", shards=(3, 5))
    assert doorbell._headers(bell)[doorbell.TICKET]["shards"] == [3, 5]
    assert "shards" not in doorbell._headers(Bell("jobs", str(uuid.uuid4())))[doorbell.TICKET]
