"""Visits: what `process` returns is saved, with state, timer and queue together, or not at all (S5, S6, S8)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf.wrappers_pb2 import Int64Value

from stages import Patch, Untouched, Updated, queue
from stages.identity import shard_of
from stages.model import GUARD, STATE
from tests.kit.faults import Crashed, crash_at
from tests.kit.stages_rows import Lot, Offer, Stages, entity, execute, number, visit, visits, waiting, world

NOW = datetime.now(UTC)
SOON, LATER = NOW + timedelta(hours=1), NOW + timedelta(days=2)


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


def priced(price: int, **more: Any) -> Any:
    def process(offer: Offer, _state: object) -> Updated:
        offer.price = price
        return Updated(offer, **more)

    return process


# From a change to a visit


def test_a_new_entity_is_visited(stages: Stages) -> None:
    # S1
    stages.stage("publish")
    stages.put("a")
    assert stages.serve() == 1
    assert waiting() == [("a", "publish")]
    assert stages.serve("publish") == 1
    assert stages.made == [("publish", "a")]
    assert waiting() == []
    assert execute(sa.select(GUARD)) == []


def test_every_stage_is_asked_and_those_that_want_it_visit(stages: Stages) -> None:
    # S4 S8
    stages.stage("no", wants=False)
    stages.stage("yes", wants=True)
    stages.stage("later", wants=SOON)
    stages.stage("span", wants=timedelta(days=1))
    stages.stage("past", wants=NOW - timedelta(days=1))
    stages.stage("cheap", wants=lambda offer, _state: offer.price < 10)
    stages.asked("a", price=10)
    assert waiting() == [("a", "later"), ("a", "past"), ("a", "span"), ("a", "yes")]
    assert visit("a", "later").due_at == SOON
    assert visit("a", "span").due_at > NOW + timedelta(hours=23)
    assert NOW - timedelta(minutes=5) < visit("a", "past").due_at < SOON


def test_a_stage_is_not_asked_when_nothing_that_it_watches_has_changed(stages: Stages) -> None:
    # S8
    for name, watches in (("all", None), ("price", {"price"}), ("status", {"status"}), ("both", {"price", "status"})):
        stages.stage(name, watches=watches)
    stages.asked("a")
    assert [stage for _, stage in waiting()] == ["all", "both", "price", "status"]
    stages.forget()
    for change, expected in (("price = 1", ["all", "both", "price"]), ("note = '1'", ["all"]), ("price = 1", ["all"])):
        execute(" ".join(["UPDATE offer SET", change]))
        stages.serve()
        assert [stage for _, stage in waiting()] == expected
        stages.forget()


def test_a_stage_sees_its_own_state_when_it_is_asked(stages: Stages) -> None:
    # S6
    stages.stage(
        "count", state=Int64Value, wants=lambda _offer, state: state is None, does=Untouched(state=Int64Value(value=3))
    )
    stages.stage("other", state=Int64Value, wants=lambda _offer, state: state is not None)
    stages.asked("a")
    assert waiting() == [("a", "count")]
    stages.serve("count")
    execute("UPDATE offer SET price = 1")
    stages.serve()
    assert waiting() == []


def test_a_worker_that_takes_all_tickets_makes_quick_visits_at_once(stages: Stages) -> None:
    stages.calls.all = True
    stages.stage("one", watches={"price"}, does=Patch({"status": "one"}))
    stages.stage(
        "two", watches={"status"}, wants=lambda offer, _state: offer.status == "one", does=Patch({"note": [2]})
    )
    stages.put("a")
    stages.serve()
    assert stages.made == [("one", "a"), ("two", "a")]
    assert waiting() == []
    assert (entity("a").note, entity("a").version) == ([2], 3)


def test_a_ticket_for_what_nobody_declares_makes_nothing(stages: Stages) -> None:
    stages.put("a")
    assert stages.serve("unknown") == 0
    assert stages.serve(kind="unknown") == 0


# What it comes to


def test_untouched_leaves_all_as_it_is(stages: Stages) -> None:
    # S5
    stages.stage("publish", does=Untouched())
    stages.asked("a")
    stages.serve("publish")
    assert entity("a").version == 1
    assert waiting() == []


def test_updated_saves_what_differs_and_asks_the_others(stages: Stages) -> None:
    # S5 S7 S8
    stages.stage("publish", watches={"price"}, does=priced(5))
    stages.stage("tell", watches={"price"})
    stages.stage("sleep", watches={"status"})
    stages.put("a")
    stages.serve()
    execute("DELETE FROM tidemill.stage_visit WHERE stage <> 'publish'")
    stages.serve("publish")
    assert (entity("a").price, entity("a").version) == (5, 2)
    assert waiting() == [("a", "tell")], "neither the stage itself nor the system stage"
    row = visit("a", "tell")
    assert (row.hops, row.chain, row.shard) == (1, "publish", shard_of("a", 16))


def test_updated_without_a_change_is_untouched(stages: Stages) -> None:
    # S5
    stages.stage("publish", does=priced(5))
    stages.stage("tell", wants=False)
    stages.asked("a", price=5)
    stages.serve("publish")
    assert (entity("a").version, waiting()) == (1, [])


def test_a_patch_sets_attributes(stages: Stages) -> None:
    # S5
    stages.stage("publish", does=Patch({"status": "live", "note": {"a": [1]}, "price": None}))
    stages.asked("a", price=3)
    stages.serve("publish")
    found = entity("a")
    assert (found.status, found.note, found.price, found.version) == ("live", {"a": [1]}, None, 2)


def test_what_process_changes_and_does_not_return_is_not_saved(stages: Stages) -> None:
    # S5
    def process(offer: Offer, _state: object) -> Untouched:
        offer.price = 7
        return Untouched()

    stages.stage("publish", does=process)
    stages.asked("a")
    stages.serve("publish")
    assert (entity("a").price, entity("a").version) == (None, 1)


def test_a_batch_is_saved_together(stages: Stages) -> None:
    # S20
    def process(offer: Offer, _state: object) -> Any:
        match int(offer.id) % 4:
            case 0:
                return Untouched()
            case 1:
                return Patch({"status": "live"})
            case 2:
                return Patch({"price": int(offer.id)}, timer=SOON)
            case _:
                offer.note = [offer.id]
                return Updated(offer, state=Int64Value(value=int(offer.id)))

    stages.stage("publish", does=process, state=Int64Value)
    ids = [f"{number:03}" for number in range(100)]
    stages.asked(*ids)
    assert stages.serve("publish") >= 100, "more where some went back, because the first took long"
    offers = execute("SELECT * FROM offer")
    assert len(offers) == 100
    for offer in offers:
        place = int(offer.id) % 4
        seen = (offer.version, offer.status, offer.price, offer.note, number(offer.id))
        assert seen == (
            1 + (place > 0),
            "live" if place == 1 else "new",
            int(offer.id) if place == 2 else None,
            [offer.id] if place == 3 else None,
            int(offer.id) if place == 3 else None,
        )
    assert [row.entity_id for row in visits()] == [each for each in ids if int(each) % 4 == 2]


# Timers


@pytest.mark.parametrize("outcome", [Untouched(timer=SOON), Patch({"price": 1}, timer=SOON)])
def test_a_timer_brings_it_again(stages: Stages, outcome: Any) -> None:
    # S1 S5
    outcomes = [outcome, Untouched()]
    stages.stage("publish", does=lambda *_: outcomes.pop(0))
    stages.asked("a")
    stages.serve("publish")
    assert visit("a", "publish").due_at == SOON
    assert stages.serve("publish") == 0
    stages.all_due()
    assert stages.serve("publish") == 1
    assert waiting() == [], "no timer stays armed that was left out"


def test_a_timer_that_is_left_out_is_cleared_by_the_next_visit(stages: Stages) -> None:
    # S5
    outcomes = [Untouched(timer=LATER), Untouched()]
    stages.stage("publish", does=lambda *_: outcomes.pop(0))
    stages.asked("a")
    stages.serve("publish")
    execute("UPDATE offer SET price = 1")
    stages.serve()
    assert visit("a", "publish").due_at < SOON, "the earlier of both (S2)"
    stages.serve("publish")
    assert waiting() == []


def test_a_timer_that_has_passed_comes_at_once(stages: Stages) -> None:
    outcomes = [Untouched(timer=NOW - timedelta(hours=1)), Untouched()]
    stages.stage("publish", does=lambda *_: outcomes.pop(0))
    stages.asked("a")
    assert stages.serve("publish") == 2


# States


def test_a_state_is_kept_removed_and_made_anew(stages: Stages) -> None:
    # S6
    outcomes: list[Any] = [
        Untouched(state=Int64Value(value=1)),
        Untouched(),
        Patch({"price": 1}),
        Updated(None, state=Int64Value(value=2)),
        Patch({"price": 2}, state=None),
        Untouched(state=None),
        Patch({"price": 3}, timer=SOON, state=Int64Value()),
    ]
    # The version moves with each change, and what is made anew has none that was there before.
    expected = [(1, True), (1, False), (1, False), (2, True), (None, False), (None, False), (0, True)]
    last = 0
    seen: list[int | None] = []

    def process(offer: Offer, state: Int64Value | None) -> Any:
        seen.append(None if state is None else state.value)
        outcome = outcomes.pop(0)
        return Updated(offer, state=outcome.state) if isinstance(outcome, Updated) else outcome

    stages.stage("publish", does=process, state=Int64Value)
    stages.put("a")
    for value, moves in expected:
        execute("UPDATE offer SET note = '1'")
        stages.serve()
        stages.serve("publish")
        rows = execute(sa.select(STATE.c.version, STATE.c.type_url))
        version = rows[0].version if rows else last
        assert (number(), version > last) == (value, moves)
        last = version
        assert all(row.type_url == "type.googleapis.com/google.protobuf.Int64Value" for row in rows)
    assert seen == [None, 1, 1, 1, 2, None, None]


def test_nobody_else_sees_a_state(stages: Stages) -> None:
    # S6
    seen: list[Any] = []
    stages.stage("one", does=Untouched(state=Int64Value(value=1)), state=Int64Value)

    def look(_offer: Offer, state: Int64Value | None) -> Untouched:
        seen.append(state)
        return Untouched()

    stages.stage("two", does=look, state=Int64Value)
    stages.asked("a")
    stages.serve("one")
    stages.serve("two")
    assert seen == [None]
    assert (number(stage="one"), number(stage="two")) == (1, None)


@pytest.mark.parametrize("point", ["visits.processed", "finish.before_commit"])
def test_all_of_a_visit_is_saved_or_nothing(stages: Stages, point: str) -> None:
    # S6
    stages.stage("publish", does=Patch({"price": 1}, timer=SOON, state=Int64Value(value=1)), state=Int64Value)
    stages.stage("tell", watches={"price"})
    stages.put("a")
    stages.serve()
    execute("DELETE FROM tidemill.stage_visit WHERE stage = 'tell'")
    with crash_at(point), pytest.raises(Crashed):
        stages.serve("publish")
    assert (entity("a").version, number(), visit("a", "publish").state) == (1, None, "running")
    assert waiting() == [("a", "publish")]
    stages.sweep()
    stages.all_due()
    stages.serve("publish")
    assert (entity("a").version, number(), visit("a", "publish").due_at) == (2, 1, SOON)
    assert waiting() == [("a", "publish"), ("a", "tell")]


# Entities that come and go


def test_an_entity_that_is_gone_leaves_the_queue(stages: Stages) -> None:
    stages.stage("publish")
    queue.offer_many(["a", "b"], "offer.publish")
    stages.put("b")
    assert stages.serve("publish") == 2
    assert stages.made_by("publish") == ["b"]
    assert waiting() == [("b", "system")]


def test_an_entity_that_is_deleted_while_it_is_visited_stays_deleted(stages: Stages) -> None:
    def process(offer: Offer, _state: object) -> Any:
        execute("DELETE FROM offer WHERE id = 'a'")
        return Patch({"price": 1}, timer=SOON, state=Int64Value(value=1))

    stages.stage("publish", does=process, state=Int64Value)
    stages.stage("tell")
    stages.asked("a")
    stages.serve("publish")
    assert (entity("a"), waiting(), number()) == (None, [], None)


def test_one_that_is_made_anew_meanwhile_is_another(stages: Stages) -> None:
    def process(_offer: Offer, _state: object) -> Any:
        if len(stages.made) == 1:
            execute("DELETE FROM offer")
            execute("INSERT INTO offer (id) VALUES ('a')")
        return Patch({"status": str(len(stages.made))})

    stages.stage("publish", does=process)
    stages.asked("a")
    stages.serve("publish")
    assert (entity("a").version, entity("a").status, waiting()) == (1, "new", [("a", "system")])


# Optimistic mode


def test_several_stages_that_want_an_entity_are_spread(stages: Stages) -> None:
    # S8 S12
    for name in ("one", "two", "three"):
        stages.stage(name, of=Lot)
    ids = [f"l{number}" for number in range(30)]
    stages.asked(*ids, of=Lot)
    rows = visits()
    assert len(rows) == 90
    times = {row.due_at for row in rows}
    assert len(times) == 90
    assert timedelta(milliseconds=300) < max(times) - min(times) < timedelta(minutes=1)


def test_one_stage_that_wants_an_entity_needs_no_spreading(stages: Stages) -> None:
    # S8
    stages.stage("one", of=Lot)
    stages.stage("two", of=Lot, wants=False)
    stages.asked("l", of=Lot)
    assert stages.serve("one", "lot") == 1
