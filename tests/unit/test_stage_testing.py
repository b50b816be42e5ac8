"""The harness of stages: one visit, and a world of them, without a database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import Int64Value

from app.errors import BadOutcome, BadRequest
from stages import Kind, Patch, Untouched, Updated, now, stage
from stages.outcomes import KEEP
from stages.testing import World, visit
from tests.kit.stages_memory import MemoryStore, Parcel, declare, nothing_declared, parcels

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Weigh:
    """Once; then again an hour later, to see whether it has got heavier."""

    def should_process(self, parcel: Parcel, state: Int64Value | None) -> bool:
        return parcel.weight == 0

    def process(self, parcel: Parcel, state: Int64Value | None) -> Updated:
        parcel.weight = 7
        return Updated(parcel, timer=HOUR, state=Int64Value(value=state.value + 1 if state else 1))


class Post:
    def should_process(self, parcel: Parcel, state: None) -> bool:
        return parcel.status == "new" and parcel.weight > 0

    def process(self, parcel: Parcel, state: None) -> Patch:
        return Patch({"status": "posted"}, reads=["status"])


@pytest.fixture(autouse=True)
def kind() -> Iterator[Kind]:
    with nothing_declared():
        found = parcels(max_hops=5)
        stage(found, state=Int64Value)(Weigh)
        stage(found, watches={"weight"})(Post)
        yield found


def ran(world: World) -> list[tuple[str, str]]:
    return [(each.entity_id, each.stage) for each in world.visits]


def test_one_visit() -> None:
    seen = visit(Weigh, Parcel("p-1"), now=NOW)
    assert isinstance(seen.outcome, Updated)
    assert seen.changed == {"weight"}
    assert (seen.wanted, seen.entity.weight) == (True, 7)
    assert (seen.timer, seen.state) == (NOW + HOUR, Int64Value(value=1))


def test_a_visit_with_a_state_that_does_not_want_it() -> None:
    seen = visit(Weigh, Parcel("p-1", weight=7), Int64Value(value=3), now=NOW)
    assert (seen.wanted, seen.changed, seen.state) == (False, frozenset(), Int64Value(value=4))


def test_a_visit_that_patches() -> None:
    seen = visit(Post, Parcel("p-1", weight=7))
    assert seen.changed == {"status"}
    assert (seen.entity.status, seen.timer, seen.state) == ("posted", None, None)


def test_a_visit_that_returns_a_copy(kind: Kind) -> None:
    definition = declare(kind, "seal", does=lambda parcel, _: Updated(replace(parcel, status="sealed")))
    parcel = Parcel("p-1")
    seen = visit(type(definition.stage), parcel)
    assert seen.changed == {"status"}
    assert seen.entity is parcel
    assert parcel.status == "sealed"


@pytest.mark.parametrize(("state", "after"), [(KEEP, Int64Value(value=3)), (None, None)])
def test_a_state_stays_or_goes(kind: Kind, state: Any, after: Int64Value | None) -> None:
    definition = declare(kind, "seal", does=Untouched(state=state), state=Int64Value)
    assert visit(type(definition.stage), Parcel("p-1"), Int64Value(value=3)).state == after


def _paint(parcel: Parcel, _state: object) -> bool:
    parcel.status = "painted"
    return True


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Untouched(), "return Updated(entity)"),
        (Patch({"weight": 9}), "put it into what is returned"),
        (Updated(Parcel("p-1")), "put it into what is returned"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_change_that_is_not_returned_is_told(kind: Kind, outcome: Any, said: str) -> None:
    definition = declare(
        kind, "seal", wants=True, does=lambda parcel, state: outcome if _paint(parcel, state) else None
    )
    with pytest.raises(
        BadOutcome, match=r"of parcel 'p-1': process has changed status of the entity, which is not"
    ) as e:
        visit(type(definition.stage), Parcel("p-1"))
    assert said in str(e.value)
    world = World(NOW)
    world.add(Parcel("p-1"))
    with pytest.raises(BadOutcome, match="process has changed status"):
        world.run()


def test_a_question_changes_nothing(kind: Kind) -> None:
    definition = declare(kind, "seal", wants=_paint)
    with pytest.raises(
        BadOutcome, match=r"should_process has changed status of the entity, .*: change it in process only"
    ):
        visit(type(definition.stage), Parcel("p-1"))
    world = World(NOW)
    world.add(Parcel("p-1"))
    with pytest.raises(BadOutcome, match="a should_process has changed status"):
        world.run()


@pytest.mark.parametrize("answer", [None, "yes", 1, NOW.replace(tzinfo=None), timedelta(days=99_999)])
def test_an_answer_that_is_none_is_told(kind: Kind, answer: Any) -> None:
    # S4
    definition = declare(kind, "seal", wants=answer)
    with pytest.raises(BadOutcome, match="should_process"):
        visit(type(definition.stage), Parcel("p-1"), now=NOW)


@pytest.mark.parametrize("answer", [True, False, NOW, NOW - HOUR, -HOUR, HOUR])
def test_what_was_answered_is_told(kind: Kind, answer: Any) -> None:
    definition = declare(kind, "seal", wants=answer)
    assert visit(type(definition.stage), Parcel("p-1"), now=NOW).wanted == answer


@pytest.mark.parametrize("time", [NOW.replace(tzinfo=None), "noon", HOUR])
def test_now_is_a_time_with_a_zone(time: Any) -> None:
    for act in (lambda: visit(Weigh, Parcel("p-1"), now=time), lambda: World(time)):
        with pytest.raises(BadRequest, match="must be a datetime with a time zone"):
            act()


def test_what_a_stage_raises_is_raised(kind: Kind) -> None:
    def fails(_parcel: Parcel, _state: object) -> Any:
        raise LookupError("no price")

    asked, called = declare(kind, "asked", wants=fails), declare(kind, "called", does=fails)
    for definition in (asked, called):
        with pytest.raises(LookupError, match="no price"):
            visit(type(definition.stage), Parcel("p-1"))


def test_mistakes_of_the_test_are_told(kind: Kind) -> None:
    with pytest.raises(BadRequest, match=r"Parcel is no stage: put @stage\(…\) above it"):
        visit(Parcel, Parcel("p-1"))
    stage(Kind("letter", MemoryStore(Parcel), "letter"), name="weigh_letter")(Weigh)
    with pytest.raises(BadRequest, match="Weigh is a stage of several kinds"):
        visit(Weigh, Parcel("p-1"))
    world = World(NOW)
    world.add(Parcel("p-1"))
    with pytest.raises(BadRequest, match="parcel 'p-1' is in this world already: use change"):
        world.add(Parcel("p-1"))
    with pytest.raises(BadRequest, match=r"is not in this world: add it first"):
        world.change(Parcel("p-2"), weight=3)
    with pytest.raises(BadRequest, match="5 is an entity of no kind that has a stage"):
        world.add(5)
    del kind


def test_a_world_runs_the_chain_to_rest() -> None:
    # S8, S11
    world, parcel = World(NOW), Parcel("p-1")
    world.add(parcel)
    assert world.check(parcel) == {"system": NOW}
    assert [each.stage for each in world.run()] == ["weigh", "post"]
    assert (parcel.weight, parcel.status) == (7, "posted")
    assert [each.changed for each in world.visits] == [{"weight"}, {"status"}]
    assert world.check(parcel) == {"weigh": NOW + HOUR}
    assert world.state_of(parcel, Weigh) == Int64Value(value=1)
    assert world.state_of(parcel, Post) is None
    assert world.run() == []


def test_timers_come_when_their_time_does() -> None:
    # S1
    world, parcel = World(NOW), Parcel("p-1")
    world.add(parcel)
    assert [(each.stage, each.at) for each in world.advance("150min")] == [
        ("weigh", NOW),
        ("post", NOW),
        ("weigh", NOW + HOUR),
        ("weigh", NOW + 2 * HOUR),
    ]
    assert world.now == NOW + timedelta(minutes=150)
    assert world.state_of(parcel, Weigh) == Int64Value(value=3)


def test_a_change_from_outside_asks_who_watches_it() -> None:
    # S8
    world, parcel = World(NOW), Parcel("p-1", weight=7)
    world.add(parcel)
    world.run()
    assert ran(world) == [("p-1", "post")]
    world.change(parcel, status="new")
    assert world.run() == [], "who posts does not watch the status"
    world.change(parcel, weight=8)
    assert [each.stage for each in world.run()] == ["post"]
    world.change(parcel, weight=8)
    assert world.run() == [], "nothing has changed"
    with pytest.raises(BadRequest, match="no attribute colour"):
        world.change(parcel, colour="red")


def test_changes_before_a_run_add_up() -> None:
    # S2, S8
    world, parcel = World(NOW), Parcel("p-1", weight=7, status="posted")
    world.add(parcel)
    world.run()
    world.change(parcel, status="new")
    world.change(parcel, weight=8)
    assert [each.stage for each in world.run()] == ["post"]


def test_asked_for_twice_means_the_earlier_time(kind: Kind) -> None:
    # S2
    declare(kind, "seal", wants=lambda parcel, _: timedelta(hours=parcel.weight), does=Untouched(timer=5 * HOUR))
    world, parcel = World(NOW), Parcel("p-1", weight=3, status="posted")
    world.add(parcel)
    world.run()
    for hours, due in ((4, 3), (2, 2), (9, 2)):
        world.change(parcel, weight=hours)
        world.run()
        assert world.check(parcel) == {"seal": NOW + due * HOUR}
    world.advance("2h")
    assert world.check(parcel) == {"seal": NOW + 7 * HOUR}, "the timer of the visit"


def test_a_timer_that_is_not_set_again_is_gone(kind: Kind) -> None:
    # S5
    outcomes = [Untouched(timer=HOUR), Untouched()]
    declare(kind, "seal", wants=True, does=lambda _parcel, _state: outcomes.pop(0))
    world, parcel = World(NOW), Parcel("p-1", weight=7, status="posted")
    world.add(parcel)
    world.advance("1d")
    assert [each.at for each in world.visits] == [NOW, NOW + HOUR]
    assert world.check(parcel) == {}


def test_a_failure_of_a_question_is_a_visit_and_is_kept(kind: Kind) -> None:
    # S4
    declare(kind, "seal", wants="maybe")
    world = World(NOW)
    world.add(Parcel("p-1", weight=7, status="posted"))
    assert [each.stage for each in world.run()] == ["seal"]
    assert world.failures[0].startswith("seal: ")
    assert "should_process returned 'maybe'" in world.failures[0]


def test_stages_that_keep_changing_what_others_change_are_told(kind: Kind) -> None:
    # S11
    def become(status: str) -> Any:
        return lambda parcel, _: Updated(replace(parcel, status=status))

    declare(kind, "seal", wants=lambda parcel, _: parcel.status == "open", does=become("sealed"))
    declare(kind, "open", wants=lambda parcel, _: parcel.status == "sealed", does=become("open"))
    world, parcel = World(NOW), Parcel("p-1", weight=7, status="sealed")
    world.add(parcel)
    with pytest.raises(BadRequest) as error:
        world.run()
    assert "parcel 'p-1' does not come to rest: more than 5 visits in one chain" in str(error.value)
    assert "open → seal → open" in str(error.value)


def test_a_timer_that_is_always_due_is_a_loop_too(kind: Kind) -> None:
    # S11
    declare(kind, "seal", wants=True, does=Untouched(timer=timedelta(0)))
    world = World(NOW)
    world.add(Parcel("p-1", weight=7, status="posted"))
    with pytest.raises(BadRequest, match=r"does not come to rest: .* seal → seal"):
        world.run()
    assert len(world.visits) == 6


def test_a_pause_that_a_stage_asks_for_begins_a_new_chain(kind: Kind) -> None:
    # S11
    for name in ("seal", "open"):
        declare(
            kind,
            name,
            wants=timedelta(days=1),
            does=lambda parcel, _: Updated(replace(parcel, weight=parcel.weight + 1)),
        )
    world = World(NOW)
    world.add(Parcel("p-1", weight=7, status="posted"))
    assert len(world.advance("20d")) > 10


def test_a_visit_that_fails_stays_due(kind: Kind) -> None:
    def fails(_parcel: Parcel, _state: object) -> Any:
        raise LookupError("no price")

    declare(kind, "seal", wants=True, does=fails)
    world, parcel = World(NOW), Parcel("p-1", weight=7, status="posted")
    world.add(parcel)
    with pytest.raises(LookupError):
        world.run()
    assert world.check(parcel) == {"seal": NOW}


def test_entities_do_not_disturb_each_other() -> None:
    world = World(NOW)
    for number in range(3):
        world.add(Parcel(f"p-{number}"))
    world.run()
    assert sorted(ran(world)) == [(f"p-{number}", stage) for number in range(3) for stage in ("post", "weigh")]


def test_a_stage_is_told_the_time_of_the_test(kind: Kind) -> None:
    """Of each call, and not a moment longer."""
    times: list[datetime] = []

    def asked(_parcel: Parcel, _state: object) -> bool:
        times.append(now())
        return True

    def called(_parcel: Parcel, _state: object) -> Untouched:
        times.append(now())
        return Untouched(timer=timedelta(days=2) if len(times) == 4 else None)

    definition = declare(kind, "seal", wants=asked, does=called)
    visit(type(definition.stage), Parcel("p-1"), now=NOW)
    later = NOW + HOUR
    world = World(later)
    world.add(Parcel("p-1", weight=7, status="posted"))
    world.advance("2d")
    assert times == [NOW, NOW, later, later, later + timedelta(days=2)]
    assert now() > datetime.now(UTC) - HOUR
