"""The index against `check` of every trigger, after every step of random histories (T18)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.property.test_triggers import leaves
from triggers.index import Index
from triggers.instants import Instant, to_datetime, to_instant
from triggers.trigger import (
    All,
    Any,
    ChunkDelay,
    ChunkDelta,
    ChunkRefDelay,
    CtlTrigger,
    Delay,
    Delta,
    RefDelay,
    Trigger,
)
from triggers.verdict import Parameter

#: Near to each other and to the borders of chunks, so that leaves flip often, and exactly at their thresholds.
STARTS = [
    datetime(2021, 1, 1, tzinfo=UTC),
    datetime(2021, 3, 28, 1, tzinfo=UTC),
    datetime(2021, 4, 25, 3, 27, 33, tzinfo=UTC),
    datetime(2021, 10, 30, 23, 30, tzinfo=UTC),
]
steps = st.builds(
    lambda unit, count: unit * count,
    st.sampled_from([timedelta(microseconds=1), timedelta(minutes=30), timedelta(hours=1), timedelta(days=1)]),
    st.integers(-40, 40),
)
moments = st.builds(lambda start, step: start + step, st.sampled_from(STARTS), steps)
tasks = st.sampled_from(["one", "two", "three", "four"])
pairs = st.tuples(st.sampled_from("ab"), st.sampled_from("pq"))
#: Few, so that leaves share groups, and keys.
hot: dict[str, st.SearchStrategy[str]] = {"entity": st.just("a"), "parameter": st.just("p")}
other: dict[str, st.SearchStrategy[str]] = hot | {"ref_entity": st.just("b"), "ref_parameter": st.sampled_from("pq")}
spans = st.sampled_from(["1s", "30min", "1h", "2h", "1d", "2d", "30d"])
chunks: dict[str, st.SearchStrategy[object]] = {
    "scale": st.sampled_from(["30min", "day", "month"]),
    "delta": st.none() | st.integers(1, 3),
    "tz": st.sampled_from(["UTC", "Europe/Berlin"]),
}
kinds: list[st.SearchStrategy[CtlTrigger]] = [
    st.builds(Delta, **hot, min_delta=spans),
    st.builds(Delay, **hot, max_delay=spans),
    st.builds(RefDelay, **other, max_delay=spans),
    st.builds(ChunkDelta, **hot, **chunks),
    st.builds(ChunkDelay, **hot, **chunks),
    st.builds(ChunkRefDelay, **other, **chunks),
    leaves,
]
seens = st.dictionaries(pairs, moments)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.drawn: st.SearchStrategy[Trigger]
        self.now = STARTS[2]
        self.index = Index(to_instant(self.now))
        self.triggers: dict[str, Trigger] = {}
        self.last_seen: dict[str, dict[Parameter, datetime]] = {}
        self.values: dict[Parameter, datetime] = {}
        #: As of the last call of `flipped`.
        self.told: dict[str, bool] = {}

    @initialize(few=st.lists(st.sampled_from(kinds), min_size=1, max_size=3))
    def choose(self, few: list[st.SearchStrategy[CtlTrigger]]) -> None:
        # Few kinds in one history meet more often than all kinds would.
        leaf = st.one_of(few)
        several = st.lists(leaf, min_size=1, max_size=4)
        self.drawn = leaf | several.map(lambda found: All(*found)) | several.map(lambda found: Any(*found))

    @rule(name=tasks, data=st.data(), seen=seens)
    def put(self, name: str, data: st.DataObject, seen: dict[Parameter, datetime]) -> None:
        self.enter(name, data.draw(self.drawn), seen)

    @rule(name=tasks, data=st.data())
    def edit(self, name: str, data: st.DataObject) -> None:
        # T13: what was seen is kept by parameter.
        self.enter(name, data.draw(self.drawn), self.last_seen.get(name, {}))

    def enter(self, name: str, trigger: Trigger, seen: dict[Parameter, datetime]) -> None:
        before = self.named()
        new = self.index.put(name, trigger, instants(seen))
        assert new == set(trigger.parameters) - before
        self.triggers[name], self.last_seen[name] = trigger, seen
        for parameter in new:
            self.index.set_current(parameter, instant(self.values.get(parameter)))

    @rule(name=tasks)
    def drop(self, name: str) -> None:
        self.index.drop(name)
        self.triggers.pop(name, None)

    @rule(name=tasks, seen=seens)
    def see(self, name: str, seen: dict[Parameter, datetime]) -> None:
        if name in self.triggers:
            self.index.seen(name, instants(seen))
            self.last_seen[name] = seen

    @rule(name=tasks)
    def ran(self, name: str) -> None:
        # T11
        if name in self.triggers:
            mine = self.triggers[name].parameters
            self.see(name, {each: value for each, value in self.values.items() if each in mine})

    @rule(parameter=pairs, value=st.none() | moments)
    def set_current(self, parameter: Parameter, value: datetime | None) -> None:
        self.index.set_current(parameter, instant(value))
        if value is None:
            self.values.pop(parameter, None)
        else:
            self.values[parameter] = value

    @rule(parameter=pairs, step=steps)
    def move(self, parameter: Parameter, step: timedelta) -> None:
        self.set_current(parameter, self.values.get(parameter, self.now) + step)

    @rule(now=moments)
    def set_now(self, now: datetime) -> None:
        self.now = now
        self.index.set_now(to_instant(now))

    @rule(step=steps)
    def tick(self, step: timedelta) -> None:
        self.set_now(self.now + step)

    @rule()
    def to_the_timer(self) -> None:
        timer = self.index.next_timer()
        if timer is None:
            assert self.truths(self.now + timedelta(days=20_000)) == self.truths(self.now)
            return
        before = self.truths(self.now)
        assert timer > to_instant(self.now)
        assert self.truths(to_datetime(timer - 1)) == before
        self.set_now(to_datetime(timer))

    @rule()
    def flipped(self) -> None:
        now = self.truths(self.now)
        assert self.index.flipped() == {name for name, fires in now.items() if fires != self.told.get(name, False)}
        assert self.index.flipped() == set()
        self.told = now

    @invariant()
    def it_says_what_check_says(self) -> None:
        index = self.index
        assert {name: index.truth(name) for name in self.triggers} == self.truths(self.now)
        assert len(index) == len(self.triggers)
        assert {name for name in ("one", "two", "three", "four") if name in index} == self.triggers.keys()
        for parameter in [("a", "p"), ("a", "q"), ("b", "p"), ("b", "q")]:
            names = {name for name, trigger in self.triggers.items() if parameter in trigger.parameters}
            assert index.watchers(parameter) == names
            assert index.current(parameter) == (instant(self.values.get(parameter)) if names else None)

    @invariant()
    def what_is_lacking_could_make_false_leaves_true(self) -> None:
        for name, trigger in self.triggers.items():
            readings = trigger.check(self.now, self.values, self.last_seen[name]).readings
            false = [reading for reading in readings if not reading.fired]
            missing = {each.ref for each in false if each.ref is not None and self.values.get(each.ref) is None}
            assert self.index.lacking(name) == {each.parameter for each in false} | missing

    def truths(self, now: datetime) -> dict[str, bool]:
        return {name: each.check(now, self.values, self.last_seen[name]).fired for name, each in self.triggers.items()}

    def named(self) -> set[Parameter]:
        return {parameter for trigger in self.triggers.values() for parameter in trigger.parameters}


def instant(moment: datetime | None) -> Instant | None:
    return None if moment is None else to_instant(moment)


def instants(values: dict[Parameter, datetime]) -> dict[Parameter, Instant]:
    return {parameter: to_instant(moment) for parameter, moment in values.items()}


def test_the_index_says_what_check_says() -> None:
    run_state_machine_as_test(Machine, settings=settings(max_examples=200, stateful_step_count=50, deadline=None))
