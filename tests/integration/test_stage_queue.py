"""The queues of stages keep what `stages/queue.py` promises (S2, S3, S10)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from app.db import engine, transaction
from stages import Patch, Untouched, queue
from stages.identity import shard_of
from stages.model import GUARD
from tests.kit.stages_rows import Offer, Stages, entity, execute, visit, visits, waiting, world

NOW = datetime.now(UTC)
EARLY, LATE = NOW + timedelta(hours=1), NOW + timedelta(hours=2)
PAST = NOW - timedelta(hours=1)


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        found.stage("publish")
        yield found


def due(entity_id: str = "a", stage: str = "publish") -> datetime | None:
    found: datetime | None = visit(entity_id, stage).due_at
    return found


# An entity is in the queue of a stage at most once


def test_offered_it_waits(stages: Stages) -> None:
    # S3
    assert queue.offer("a", "offer.publish", EARLY) is True
    row = visit("a", "publish")
    assert (row.kind, row.queue, row.state, row.due_at) == ("offer", "stage.offer.publish", "waiting", EARLY)
    assert row.shard == shard_of("a", 16)


@pytest.mark.parametrize(("first", "second"), [(EARLY, LATE), (LATE, EARLY), (EARLY, EARLY)])
def test_offered_twice_keeps_the_earliest(stages: Stages, first: datetime, second: datetime) -> None:
    # S2
    assert queue.offer("a", "offer.publish", first) is True
    assert queue.offer("a", "offer.publish", second) is (second < first)
    assert [due()] == [EARLY]


def test_offered_without_a_time_it_is_for_now(stages: Stages) -> None:
    queue.offer("a", "offer.publish", LATE)
    begun = datetime.now(UTC)
    assert queue.offer("a", "offer.publish") is True
    (found,) = queue.peek("offer.publish")
    assert begun - timedelta(minutes=1) < found.visit_time < datetime.now(UTC) + timedelta(minutes=1)


def test_offered_together_each_is_in_once(stages: Stages) -> None:
    # S2
    assert queue.offer_many(["a", "b", "a"], "offer.publish", EARLY) == 2
    assert queue.offer_many(["c", "b"], "offer.publish", EARLY) == 1
    assert queue.offer_many([], "offer.publish") == 0
    assert waiting() == [("a", "publish"), ("b", "publish"), ("c", "publish")]


def test_each_stage_has_a_queue_of_its_own(stages: Stages) -> None:
    # S2
    stages.stage("expire")
    queue.offer("a", "offer.publish", EARLY)
    queue.offer("a", "offer.expire", LATE)
    assert [each.id for each in queue.peek("offer.expire")] == ["a"]
    assert queue.check((Offer, "a")) == [("expire", LATE), ("publish", EARLY)]


def test_a_time_in_the_future_is_a_timer(stages: Stages) -> None:
    stages.put("a")
    stages.forget()
    queue.offer("a", "offer.publish", EARLY)
    assert stages.serve("publish") == 0
    stages.all_due()
    assert stages.serve("publish") == 1
    assert waiting() == []


# Offered while it is visited


@pytest.mark.parametrize("times", [(PAST,), (EARLY,), (LATE, EARLY), (EARLY, LATE)])
def test_offered_while_visited_is_visited_again(stages: Stages, times: tuple[datetime, ...]) -> None:
    # S10
    def again(offer: Offer, _state: object) -> Untouched:
        if stages.made_by("edit") == ["a"]:
            assert [queue.offer(offer, "offer.edit", each) for each in times] == [True, times != (EARLY, LATE)][
                : len(times)
            ]
            assert visit("a", "edit").state == "running"
        return Untouched()

    stages.stage("edit", does=again)
    stages.put("a")
    stages.forget()
    queue.offer("a", "offer.edit", PAST)
    stages.serve("edit")
    if times == (PAST,):
        assert stages.made_by("edit") == ["a", "a"]
        assert waiting() == []
    else:
        assert (due("a", "edit"), visit("a", "edit").state) == (EARLY, "waiting")


@pytest.mark.parametrize(("timer", "offered"), [(EARLY, LATE), (LATE, EARLY)])
def test_a_timer_and_an_offer_come_at_the_earlier(stages: Stages, timer: datetime, offered: datetime) -> None:
    # S10
    def again(offer: Offer, _state: object) -> Untouched:
        queue.offer(offer, "offer.edit", offered)
        return Untouched(timer=timer)

    stages.stage("edit", does=again)
    stages.put("a")
    queue.offer("a", "offer.edit")
    stages.serve("edit")
    assert due("a", "edit") == EARLY


def test_offered_while_visited_that_fails_keeps_the_earliest(stages: Stages) -> None:
    # S10
    def fail(offer: Offer, _state: object) -> Untouched:
        queue.offer(offer, "offer.edit", EARLY)
        raise ZeroDivisionError

    stages.stage("edit", does=fail)
    stages.put("a")
    queue.offer("a", "offer.edit", PAST)
    stages.serve("edit")
    row = visit("a", "edit")
    assert (row.due_at, row.again_at, row.state) == (PAST, None, "waiting")


def test_an_offer_never_shortens_the_pause_after_a_failure(stages: Stages) -> None:
    stages.stage("edit", does=lambda *_: 1 / 0)
    stages.put("a")
    queue.offer("a", "offer.edit", PAST)
    stages.serve("edit")
    pause = visit("a", "edit").not_before
    queue.offer("a", "offer.edit", PAST - timedelta(hours=1))
    assert stages.serve("edit") == 0
    assert [each.visit_time for each in queue.peek("offer.edit")] == [pause]
    assert queue.check((Offer, "a"))[0] == ("edit", pause)


def test_an_offer_does_not_wake_what_is_parked(stages: Stages) -> None:
    stages.stage("edit", does=lambda *_: 1 / 0, max_attempts=1)
    stages.put("a")
    queue.offer("a", "offer.edit", PAST)
    stages.serve("edit")
    assert queue.offer("a", "offer.edit", EARLY) is True
    assert queue.offer("a", "offer.edit", LATE) is False
    assert queue.offer("a", "offer.edit", LATE, low=True) is True
    row = visit("a", "edit")
    assert (row.state, row.due_at, row.again_at, row.again_low_at) == ("parked", PAST, EARLY, LATE)
    assert stages.serve("edit") == 0
    assert queue.peek("offer.edit") == []


# The low lane


def test_the_low_lane_leaves_the_main_one_as_it_is(stages: Stages) -> None:
    # S16
    queue.offer("a", "offer.publish", LATE)
    assert queue.offer("a", "offer.publish", EARLY, low=True) is True
    assert queue.offer("a", "offer.publish", LATE, low=True) is False
    row = visit("a", "publish")
    assert (row.due_at, row.low_at) == (LATE, EARLY)
    assert [each.visit_time for each in queue.peek("offer.publish")] == [LATE]
    assert [each.visit_time for each in queue.peek("offer.publish", low=True)] == [EARLY]
    assert queue.check((Offer, "a")) == [("publish", EARLY)]


def test_of_the_low_lane_only_it_is_not_in_the_main_one(stages: Stages) -> None:
    # S16
    stages.put("a")
    stages.forget()
    queue.offer("a", "offer.publish", PAST, low=True)
    assert queue.peek("offer.publish") == []
    assert visit("a", "publish").due_at is None
    assert queue.offer("a", "offer.publish", PAST) is True


def test_one_visit_serves_both_lanes(stages: Stages) -> None:
    # S16
    stages.put("a")
    stages.forget()
    queue.offer("a", "offer.publish", PAST)
    queue.offer("a", "offer.publish", PAST, low=True)
    assert stages.serve("publish") == 1
    assert waiting() == []


def test_the_low_lane_has_its_own_tickets(stages: Stages) -> None:
    # S16
    stages.put("a")
    stages.forget()
    queue.offer("a", "offer.publish", PAST, low=True)
    assert stages.serve("publish", low=True) == 1
    assert stages.made_by("publish") == ["a"]


def test_offered_to_the_low_lane_while_visited(stages: Stages) -> None:
    # S10 S16
    def again(offer: Offer, _state: object) -> Untouched:
        queue.offer(offer, "offer.edit", EARLY, low=True)
        return Untouched()

    stages.stage("edit", does=again)
    stages.put("a")
    queue.offer("a", "offer.edit")
    stages.serve("edit")
    row = visit("a", "edit")
    assert (row.due_at, row.low_at, row.again_low_at) == (None, EARLY, None)


# With the transaction


def test_what_is_offered_in_a_transaction_comes_with_it(stages: Stages) -> None:
    # S3
    with Session(engine()) as session:
        queue.offer("a", "offer.publish", session=session)
        assert waiting() == []
        session.rollback()
        assert waiting() == []
        queue.offer_many(["a", "b"], "offer.publish", session=session)
        assert [each.id for each in queue.peek("offer.publish", session=session)] == ["a", "b"]
        queue.delete("b", "offer.publish", session=session)
        assert [name for name, _ in queue.check((Offer, "a"), session=session)] == ["publish"]
        session.commit()
    assert waiting() == [("a", "publish")]


# Deleted


def test_taken_out_of_a_queue_it_is_in_no_queue(stages: Stages) -> None:
    # S3
    queue.offer("a", "offer.publish")
    assert queue.delete("a", "offer.publish") is True
    assert queue.delete("a", "offer.publish") is False
    assert waiting() == []


def test_an_entity_that_is_deleted_is_in_no_queue(stages: Stages) -> None:
    stages.put("a", "b")
    queue.offer_many(["a", "b"], "offer.publish", LATE)
    with transaction() as session:
        session.delete(session.get(Offer, "a"))
    assert waiting() == [("b", "publish"), ("b", "system")]


def test_taken_out_of_a_queue_while_it_is_visited_the_visit_saves_nothing(stages: Stages) -> None:
    # S3 S12
    def change(offer: Offer, _state: object) -> Any:
        assert len(execute(sa.select(GUARD))) == 1
        assert queue.delete(offer, "offer.edit") is True
        assert execute(sa.select(GUARD)) == [], "others may work on the entity from now on"
        return Patch({"status": "sold"})

    stages.stage("edit", does=change)
    stages.put("a")
    stages.forget()
    queue.offer("a", "offer.edit")
    stages.serve("edit")
    assert entity("a").status == "new"
    assert waiting() == []


# Looked at, by shard


def test_peek_says_what_waits_the_earliest_first(stages: Stages) -> None:
    # S3
    for entity_id, at in (("a", LATE), ("b", PAST), ("c", EARLY)):
        queue.offer(entity_id, "offer.publish", at)
    assert [(each.id, each.visit_time) for each in queue.peek("offer.publish", 2)] == [("b", PAST), ("c", EARLY)]
    assert len(visits()) == 3


def test_a_shard_is_looked_at_by_itself(stages: Stages) -> None:
    # S3 S13
    ids = [f"e{number}" for number in range(64)]
    queue.offer_many(ids, "offer.publish", EARLY)
    found = [{each.id for each in queue.peek("offer.publish", shards=(shard, shard))} for shard in range(16)]
    assert found == [{each for each in ids if shard_of(each, 16) == shard} for shard in range(16)]
    both = queue.peek("offer.publish", shards=(3, 4))
    assert {each.id for each in both} == found[3] | found[4]


def test_a_worker_with_a_ticket_for_shards_visits_these(stages: Stages) -> None:
    # S13
    ids = [f"e{number}" for number in range(64)]
    stages.put(*ids)
    stages.forget()
    queue.offer_many(ids, "offer.publish")
    stages.server().serve("stage.offer.publish", 100, (0, 7))
    assert set(stages.made_by("publish")) == {each for each in ids if shard_of(each, 16) <= 7}


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=500))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_shard_is_the_same_in_python_and_in_the_database(database_url: str, text: str) -> None:
    # S13
    with engine().connect() as connection:
        assert connection.execute(sa.select(sa.func.tidemill.shard(text))).scalar_one() == shard_of(text, 16)


def test_the_shard_of_an_entry_follows_the_number_of_shards(stages: Stages) -> None:
    # S13
    execute("UPDATE tidemill.sharding SET shards = 5")
    try:
        queue.offer_many(["a", "b", "ж"], "offer.publish")
        assert {row.entity_id: row.shard for row in visits()} == {each: shard_of(each, 5) for each in ("a", "b", "ж")}
    finally:
        execute("UPDATE tidemill.sharding SET shards = 16")


def test_entries_are_told_by_the_id_that_the_entity_has(stages: Stages) -> None:
    offer = Offer(id="ж/1")
    queue.offer(offer, "offer.publish", EARLY)
    assert [each.id for each in queue.peek("offer.publish")] == ["ж/1"]
    assert queue.check(offer) == [("publish", EARLY)]
    assert queue.delete(offer, "offer.publish") is True
