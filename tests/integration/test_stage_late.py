"""Workers that are late, because they stood still or could not reach the database: they begin nothing, and learn that
an entity has passed to somebody else (S12)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import claims
from app.claims import Cursor, Lane
from app.db import engine, transaction
from stages import ending, lanes
from stages.definition import queue_of
from stages.model import GUARD, VISIT, StageVisit
from stages.queue import offer_many
from tests.kit.faults import installed
from tests.kit.stages_rows import LEASE, Offer, Stages, execute, visits, world
from tests.kit.waiting import pause

SHORT = timedelta(milliseconds=100)
KEYS = {each: ("offer", each, "one") for each in "ab"}


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    """With two entities, which wait in the queues of two stages."""
    with world() as found:
        for name in ("one", "two"):
            found.stage(name)
        found.put("a", "b", of=Offer)
        found.forget()
        for name in ("one", "two"):
            offer_many(["a", "b"], f"offer.{name}")
        yield found


def _take(stage: str, want: int = 10) -> claims.Claim:
    return claims.take(Cursor(StageVisit, queue_of("offer", stage), guarded=True), want, worker="w/9", lease=LEASE)


def _extended(claim: claims.Claim) -> set[tuple[str, str, str]]:
    with transaction() as session:
        session.execute(sa.text("SET LOCAL lock_timeout = '100ms'"))
        keys = sorted(KEYS.values())
        found = ending.extend(session, claim.pass_key, keys, 2 * LEASE, guarded=True)
    return {tuple(key) for key in found}


def _lease_of_a_is_over() -> None:
    past = sa.func.now() - timedelta(seconds=1)
    execute(sa.update(VISIT).where(VISIT.c.entity_id == "a", VISIT.c.stage == "one").values(recovery_time=past))
    execute(sa.update(GUARD).where(GUARD.c.entity_id == "a").values(until=past))


def test_an_entity_that_another_stage_has_taken_over_is_lost(stages: Stages) -> None:
    """S12: though the visit is still ours, until the sweep comes by."""
    mine = _take("one")
    _lease_of_a_is_over()
    assert [row.entity_id for row in _take("two").rows] == ["a"]
    assert [row.state for row in visits("one")] == ["running", "running"]
    assert _extended(mine) == {KEYS["b"]}


def test_a_lease_that_is_over_is_taken_up_again_while_nobody_wants_it(stages: Stages) -> None:
    mine = _take("one")
    _lease_of_a_is_over()
    assert _extended(mine) == set(KEYS.values())
    assert _take("two").rows == ()


def test_what_somebody_is_just_taking_over_is_lost(stages: Stages) -> None:
    mine = _take("one")
    _lease_of_a_is_over()
    with Session(engine()) as other:
        other.execute(sa.update(GUARD).where(GUARD.c.entity_id == "a").values(stage="two"))
        assert _extended(mine) == {KEYS["b"]}
        other.rollback()


def test_a_guard_that_a_stranger_has_locked_costs_no_other(stages: Stages) -> None:
    """As by a transaction that deletes the entity, and may be rolled back."""
    mine = _take("one")
    before = {row.entity_id: row.until for row in execute(sa.select(GUARD))}
    with Session(engine()) as other:
        other.execute(sa.select(GUARD).where(GUARD.c.entity_id == "a").with_for_update())
        assert _extended(mine) == set(KEYS.values())
        other.rollback()
    after = {row.entity_id: row.until for row in execute(sa.select(GUARD))}
    assert (after["a"], after["b"] > before["b"]) == (before["a"], True)


@pytest.mark.parametrize("want", [1, 10])
def test_a_guard_that_a_stranger_has_locked_holds_up_no_claim(stages: Stages, want: int) -> None:
    """S12: as a worker whose machine vanished while it saved, or a transaction that takes the entity out of a queue."""
    _take("one")
    _lease_of_a_is_over()
    execute(sa.delete(GUARD).where(GUARD.c.entity_id == "b"))
    with Session(engine()) as other:
        # A claim that waits gets both in the end.
        other.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = '60s'"))
        other.execute(sa.delete(GUARD).where(GUARD.c.entity_id == "a"))
        # Also one that has room for the first only.
        assert [row.entity_id for row in _take("two", want).rows] == ["b"]
        assert not lanes.has_work([queue_of("offer", "two")], Lane.MAIN, unlocked=True)
        other.rollback()
    assert lanes.has_work([queue_of("offer", "two")], Lane.MAIN, unlocked=True)
    assert [row.entity_id for row in _take("two").rows] == ["a"]


def _standing_still_at(point: str) -> Callable[[str], None]:
    """For longer than the lease, so that another stage takes the entities over."""

    def inject(reached: str) -> None:
        if reached != point:
            return
        past = sa.func.now() - timedelta(seconds=1)
        taken = {"stage": "two", "pass_key": uuid.uuid4(), "until": sa.func.now() + LEASE}
        with transaction() as session:
            session.execute(sa.update(VISIT).where(VISIT.c.state == "running").values(recovery_time=past))
            session.execute(sa.update(GUARD).values(**taken))
        pause(SHORT.total_seconds())

    return inject


@pytest.mark.parametrize("point", ["claim.committed", "visits.loaded", "run.before_body"])
def test_nothing_is_begun_after_the_lease(stages: Stages, point: str) -> None:
    """S12: wherever the worker stood still since it asked for the claim."""
    with installed(_standing_still_at(point)):
        stages.server(lease=SHORT).serve(queue_of("offer", "one"), 10)
    assert stages.made == []
