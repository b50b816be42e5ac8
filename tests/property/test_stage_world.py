"""The harness of stages, with stages drawn at random: it ends, it misses nothing, and the earliest time counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.errors import BadRequest
from stages import Untouched, Updated
from stages.testing import World
from tests.kit.stages_memory import Parcel, declare, nothing_declared, parcels

NOW = datetime(2026, 7, 1, tzinfo=UTC)
WEIGHTS = range(4)
MAX_HOPS = 8


@dataclass(frozen=True)
class Rule:
    """A stage that wants parcels of some weights, and makes another weight of each."""

    wants: frozenset[int]
    makes: tuple[int, ...]

    def should_process(self, parcel: Parcel, _state: object) -> bool:
        return parcel.weight in self.wants

    def process(self, parcel: Parcel, _state: object) -> Any:
        weight = self.makes[parcel.weight]
        return Untouched() if weight == parcel.weight else Updated(replace(parcel, weight=weight))


weights = st.sampled_from(WEIGHTS)
rules = st.builds(Rule, st.frozensets(weights), st.tuples(*[weights for _ in WEIGHTS]))


def declare_all(drawn: dict[str, Rule]) -> None:
    kind = parcels(max_hops=MAX_HOPS)
    for name, rule in drawn.items():

        def wants(parcel: Parcel, state: object, rule: Rule = rule) -> bool:
            return rule.should_process(parcel, state)

        def does(parcel: Parcel, state: object, rule: Rule = rule) -> Any:
            return rule.process(parcel, state)

        declare(kind, name, wants=wants, does=does)


@given(st.dictionaries(st.sampled_from("abcd"), rules), st.lists(weights, min_size=1, max_size=4))
def test_a_chain_comes_to_rest_or_is_told_to_be_a_loop(drawn: dict[str, Rule], outside: list[int]) -> None:
    # S11
    with nothing_declared():
        declare_all(drawn)
        if not drawn:
            return
        world, parcel = World(NOW), Parcel("p-1", weight=outside[0])
        world.add(parcel)
        for weight in outside[1:]:
            world.change(parcel, weight=weight)
        try:
            world.run()
        except BadRequest as error:
            looped = str(error)
        else:
            looped = ""
        if looped:
            assert "does not come to rest" in looped
            assert len(world.visits) > MAX_HOPS
            return
        assert world.check(parcel) == {}
        for name, rule in drawn.items():
            seen = [each.stage == name for each in world.visits]
            last = max(
                (place for place, each in enumerate(world.visits) if each.changed and not seen[place]), default=-1
            )
            if parcel.weight in rule.wants and (last >= 0 or parcel.weight == outside[-1]):
                assert any(seen[last + 1 :]), f"{name} has not seen what the others made of it"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 100)), min_size=1, max_size=8))
def test_the_earliest_time_that_was_asked_for_counts(steps: list[tuple[int, int]]) -> None:
    # S2
    with nothing_declared():
        declare(parcels(), wants=lambda parcel, _: timedelta(minutes=parcel.weight))
        world, parcel = World(NOW), Parcel("p-1", weight=1000)
        world.add(parcel)
        world.run()
        due: list[datetime] = [NOW + timedelta(minutes=1000)]
        visits: list[datetime] = []
        for waits, weight in steps:
            world.advance(timedelta(minutes=waits))
            if due and min(due) <= world.now:
                visits.append(min(due))
                due.clear()
            if weight != parcel.weight:
                world.change(parcel, weight=weight)
                world.run()
                due.append(world.now + timedelta(minutes=weight))
            assert world.check(parcel) == ({"weigh": min(due)} if due else {})
        assert [each.at for each in world.visits] == visits
