"""The two lanes of a stage: the low one is never starved, and never in the way of the main one (S16)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pytest
import sqlalchemy as sa

from app import dispatch, doorbell
from app.claims import Lane
from app.db import transaction
from app.doorbell import Publisher
from stages import Untouched, resweep, serving, walking
from stages.definition import RESWEEP, queue_of
from stages.model import GUARD
from stages.queue import offer, offer_many
from tests.kit.stages_shop import Shop, execute, limit, names, only, shop, visits

TIMER = datetime(2080, 1, 1, tzinfo=UTC)
PRICE = "item.price"
MAIN, LOW = [f"m{each}" for each in names(40)], [f"l{each}" for each in names(10)]


@pytest.fixture
def own(database_url: str) -> Iterator[Shop]:
    with shop() as found:
        yield found


def _both(own: Shop, **options: Any) -> None:
    """Forty entities wait in the main lane, ten in the low one."""
    own.put(*MAIN, *LOW)
    own.stage(**options)
    offer_many(MAIN, PRICE)
    offer_many(LOW, PRICE, low=True)


def _places(own: Shop) -> list[int]:
    """Which visits were those of the low lane."""
    return [place for place, entity in enumerate(own.made_of()) if entity in LOW]


def _one_claim(own: Shop, server: serving.VisitServer | None = None) -> int:
    with patch.object(serving, "TICKET_SECONDS", -1.0):
        return (server or own.one).serve(queue_of("item", "price"), 1)[0]


def test_every_tenth_claim_is_that_of_the_low_lane(own: Shop) -> None:
    # S16: not starved, and the main lane waits for one claim in ten
    _both(own)
    own.serve(take=1)
    assert _places(own) == [9, 19, 29, 39]
    assert len(own.made) == 44
    assert len(visits()) == 6


def test_the_turn_is_kept_over_tickets(own: Shop) -> None:
    _both(own)
    assert [_one_claim(own) for _ in range(20)] == [1] * 20
    assert _places(own) == [9, 19]


def test_the_turn_comes_also_where_a_rate_leaves_one_call_a_ticket(own: Shop) -> None:
    # S16 with rate_limit: a claim that the rate did not allow is nobody's turn
    _both(own)
    limit(rate="1/h")
    for _ in range(20):
        execute("update tidemill.queue set tokens = 1, refilled_at = clock_timestamp()")
        assert own.serve(take=1)[0] == 1
    assert _places(own) == [9, 19]


def test_the_turn_comes_also_where_one_works_at_a_time(own: Shop) -> None:
    # S16 with max_parallel=1: a ticket that finds the only slot taken is nobody's turn
    other = own.server("w/2")
    queue = queue_of("item", "price")
    _both(own, does=lambda *_: Untouched() if other.serve(queue, 1) == (0, False) else None)
    limit(max_parallel=1)
    for _ in range(20):
        assert _one_claim(own) == 1
    assert _places(own) == [9, 19]
    own.made.clear()
    for _ in range(10):
        assert _one_claim(own, other) == 1
    assert _places(own) == [9]


def test_a_turn_that_finds_the_low_lane_empty_is_the_main_ones(own: Shop) -> None:
    own.put(*MAIN)
    own.stage()
    offer_many(MAIN, PRICE)
    assert own.serve(take=1) == (40, False)


def test_a_low_ticket_yields_to_the_main_lane(own: Shop) -> None:
    # S16
    _both(own)
    own.calls.queues = lambda _: True
    assert own.serve(low=True) == (0, False)
    assert own.serve(take=1)[0] == 44
    assert own.serve(low=True, take=1) == (6, False)


def test_a_low_ticket_yields_as_soon_as_the_main_lane_has_work(own: Shop) -> None:
    def asks_for_another(entity: Any, _: Any) -> Untouched:
        if entity.id == LOW[2]:
            offer(MAIN[0], PRICE)
        return Untouched()

    own.put(*LOW, MAIN[0])
    own.stage(does=asks_for_another)
    own.calls.queues = lambda _: True
    offer_many(LOW, PRICE, low=True)
    assert own.serve(low=True, take=1) == (3, False)
    assert own.serve(take=1)[0] == 1
    assert own.serve(low=True, take=1) == (7, False)


def test_a_low_ticket_does_not_yield_to_what_nobody_could_begin(own: Shop) -> None:
    # S16: not starved by timers, nor by entities that others work on
    own.put("a", "b", "l")
    own.stage()
    own.calls.queues = lambda _: True
    offer("a", PRICE, TIMER)
    offer("b", PRICE)
    held = {"stage": "tag", "pass_key": sa.func.gen_random_uuid(), "until": TIMER}
    execute(sa.insert(GUARD).values(kind="item", entity_id="b", **held))
    offer("l", PRICE, low=True)
    assert own.serve(low=True) == (1, False)
    assert own.made_of() == ["l"]
    execute(sa.delete(GUARD))
    offer("l", PRICE, low=True)
    assert own.serve(low=True) == (0, False)


def test_a_worker_of_the_low_lane_alone_goes_on_but_for_shared_limits(own: Shop) -> None:
    _both(own)
    assert own.serve(low=True, take=1) == (10, False)
    offer_many(LOW, PRICE, low=True)
    limit(max_parallel=1)
    _one_low(own)
    assert own.serve(low=True, take=1) == (0, False)
    own.serve(take=1)
    assert len(visits()) < 10
    assert own.serve(low=True, take=1)[0] > 0
    assert visits() == {}


def _one_low(own: Shop) -> None:
    """By which the process learns that the queue has limits."""
    with patch.object(serving, "TICKET_SECONDS", -1.0):
        assert own.serve(low=True, take=1)[0] == 1


@pytest.mark.parametrize("low", [False, True])
def test_an_entity_in_both_lanes_is_visited_once(own: Shop, low: bool) -> None:  # noqa: FBT001
    # S16
    own.put("a")
    own.stage()
    offer("a", PRICE)
    offer("a", PRICE, low=True)
    assert own.serve(low=low)[0] == 1
    assert visits() == {}
    assert own.serve(low=not low)[0] == 0


def test_a_low_visit_decides_about_the_timer_as_any_visit(own: Shop) -> None:
    own.put("kept", "left")
    own.stage(does=lambda entity, _: Untouched(timer=TIMER if entity.id == "kept" else None))
    for each in ("kept", "left"):
        offer(each, PRICE, TIMER)
        offer(each, PRICE, low=True)
    assert own.serve(low=True)[0] == 2
    assert {name: (row.due_at, row.low_at) for name, row in visits().items()} == {"kept": (TIMER, None)}


def test_a_low_visit_that_fails_leaves_both_lanes_as_they_were(own: Shop) -> None:
    def fails(*_: Any) -> Untouched:
        raise RuntimeError("no")

    own.put("a")
    own.stage(does=fails)
    offer("a", PRICE, TIMER)
    offer("a", PRICE, low=True)
    before = visits()["a"]
    own.serve(low=True)
    after = visits()["a"]
    assert (after.due_at, after.low_at) == (before.due_at, before.low_at)
    assert after.error == "RuntimeError: no"


def test_what_a_walk_wants_while_it_is_visited_is_visited_again_in_the_low_lane(own: Shop) -> None:
    # S10, S16
    def asks_again(*_: Any) -> Untouched:
        if len(own.made) == 1:
            offer("a", PRICE, low=True)
        return Untouched()

    own.put("a")
    own.stage(does=asks_again)
    offer("a", PRICE)
    assert own.serve()[0] == 1
    assert visits()["a"].due_at is None
    assert own.serve() == (0, False)
    assert own.serve(low=True)[0] == 1
    assert visits() == {}


def test_a_walk_leaves_a_worker_to_the_main_lane_after_a_page(own: Shop) -> None:
    # S16
    _both(own, wants=False)
    resweep.start("item", parts=2)
    queue = queue_of("item", RESWEEP)
    with patch.object(walking, "PAGE", 10):
        assert own.one.serve(queue, 1)[0] == 50
        resweep.start("item", parts=2)
        own.calls.queues = lambda _: True
        asked, more = own.one.serve(queue, 1)
        assert 0 < asked <= 10
        assert not more
        own.serve()
        assert own.one.serve(queue, 1)[0] == 50 - asked


def _lying(*queues: str) -> list[int]:
    """How many tickets lie in the broker."""
    publisher = Publisher()
    try:
        return [publisher.length(each) for each in queues]
    finally:
        publisher.close()


def test_dispatch_rings_for_both_lanes_and_for_walks(
    own: Shop, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # S16: through dispatch, which finds what was not rung for
    monkeypatch.setattr(doorbell, "ring", lambda *_: None)
    own.put(*MAIN, *LOW)
    own.stage(wants=lambda entity, _: entity.id in MAIN)
    walk = resweep.start("item.price", rate="1/h", parts=1)
    tickets = ("stage.item.resweep", "stage.item.price", "stage.item.price.low")
    dispatch.run_once()
    assert _lying(*tickets) == [1, 0, 0]
    own.walk()
    dispatch.run_once()
    assert _lying(*tickets) == [1, 0, 0], "nobody is to come before the next turn"
    resweep.pause(walk)
    resweep.change_rate(walk, None)
    dispatch.run_once()
    assert _lying(*tickets) == [1, 0, 0], "nor while it is paused"
    resweep.resume(walk)
    own.walk()
    assert only().wanted == len(MAIN)
    dispatch.run_once()
    assert _lying(*tickets) == [1, 0, 1]
    assert own.serve(low=True)[0] == len(MAIN)


def test_a_walk_rings_for_the_low_lane(own: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[tuple[Any, ...]] = []
    monkeypatch.setattr(doorbell, "ring", lambda *bell: rung.append(bell))
    own.put(*LOW)
    definition = own.stage()
    with transaction() as session:
        resweep.start("item", session=session)
        assert rung == []
    assert [bell[0] for bell in rung] == ["stage.item.resweep"]
    own.walk()
    assert rung[1:] == [("stage.item.price.low", definition.task, Lane.LOW)]
