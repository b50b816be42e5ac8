"""What holds for every simulated warehouse: no run too many, no change lost, nothing waits for ever."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from triggers.holding import Plan
from triggers.instants import DAY, HOUR, MINUTE, Instant, to_datetime, to_instant
from triggers.simulation import Change, Launch, Outcome, Pool, Spread, Task, Warehouse, simulate
from triggers.simulation.conditions import Checked
from triggers.simulation.lane import Lane
from triggers.simulation.waits import Waits
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

T = to_instant(datetime(2026, 3, 27, tzinfo=UTC))
NAMES = tuple((entity, "to") for entity in ("a", "b", "c", "d"))

places = st.integers(0, 2 * DAY // (10 * MINUTE)).map(lambda steps: steps * 10 * MINUTE)
pairs = st.sampled_from(NAMES)
scales, zones = st.sampled_from(["30min", "hour", "day"]), st.sampled_from(["UTC", "Europe/Berlin"])
spans = st.sampled_from([HOUR, 3 * HOUR, DAY]).map(lambda span: f"{span // MINUTE}min")


def leaf(kind: str, own: Parameter, ref: Parameter, span: str, scale: str, tz: str) -> CtlTrigger:
    match kind:
        case "delta":
            return Delta(*own, span)
        case "delay":
            return Delay(*own, span)
        case "ref_delay":
            return RefDelay(*own, *ref, span)
        case "chunk_delta":
            return ChunkDelta(*own, scale, tz=tz)
        case "chunk_delay":
            return ChunkDelay(*own, scale, tz=tz)
        case _:
            return ChunkRefDelay(*own, *ref, scale, tz=tz)


LATCHED = ("delta", "chunk_delta")
EVERY = (*LATCHED, "delay", "ref_delay", "chunk_delay", "chunk_ref_delay")


def triggers(kinds: tuple[str, ...], names: tuple[Parameter, ...] = NAMES) -> st.SearchStrategy[Trigger]:
    named = st.sampled_from(names)
    leaves = st.builds(leaf, st.sampled_from(kinds), named, named, spans, scales, zones)
    several = st.lists(leaves, min_size=2, max_size=3)
    return leaves | several.map(lambda found: All(*found)) | several.map(lambda found: Any(*found))


# Conditions

steps = st.one_of(
    st.tuples(st.just("current"), pairs, places),
    st.tuples(st.just("seen"), pairs, places),
    st.tuples(st.just("now"), pairs, places),
)


@given(st.lists(triggers(EVERY), min_size=1, max_size=4), st.lists(steps, max_size=25))
def test_conditions_are_what_check_says(found: list[Trigger], moves: list[tuple[str, Parameter, Instant]]) -> None:
    conditions, now = Checked(), T
    current: dict[Parameter, Instant] = {}
    seen: dict[Parameter, Instant] = {}
    conditions.set_now(now)
    for number, trigger in enumerate(found):
        conditions.put(str(number), trigger, dict(seen))
    held = conditions.flipped()
    for what, name, place in moves:
        match what:
            case "current":
                current[name] = T + place
                conditions.set_current(name, T + place)
            case "seen":
                seen[name] = T + place
                for number in range(len(found)):
                    conditions.seen(str(number), dict(seen))
            case _:
                now = max(now, T + place)
                conditions.set_now(now)
        values = {each: to_datetime(value) for each, value in current.items()}
        last = {each: to_datetime(value) for each, value in seen.items()}
        verdicts = {str(number): trigger.check(to_datetime(now), values, last) for number, trigger in enumerate(found)}
        holding = {each for each, verdict in verdicts.items() if verdict.fired}
        assert {each for each in verdicts if conditions.truth(each)} == holding
        assert conditions.flipped() == holding ^ held
        held = holding
        for key, verdict in verdicts.items():
            false = [] if verdict.fired else [each for each in verdict.readings if not each.fired]
            missing = {each.ref for each in false if each.ref is not None and each.reference is None}
            assert conditions.lacking(key) == {each.parameter for each in false} | missing


# Whole warehouses


@st.composite
def warehouses(draw: st.DrawFn) -> Warehouse:
    tasks = []
    for number in range(draw(st.integers(1, 6))):
        # A task that moves what comes before it only: what it makes never starts it again.
        place = draw(st.integers(0, 3))
        trigger = draw(triggers(LATCHED, tuple(NAMES[: place + 1])))
        produces = tuple(draw(st.sets(st.sampled_from(NAMES[place + 1 :]), max_size=2))) if place < 3 else ()
        pool, priority = draw(st.sampled_from("pq")), draw(st.integers(-2, 2))
        interval = draw(st.sampled_from([0, 0, 2 * HOUR]))
        tasks.append(Task(f"t{number}", trigger, pool, priority, produces, interval))
    limits = st.none() | st.integers(1, 2)
    pools = tuple(
        Pool(name, draw(limits), draw(st.sampled_from([None, None, 0.01])), ageing=HOUR, max_hold=draw(places))
        for name in "pq"
    )
    return Warehouse(tuple(tasks), pools, slots=draw(limits))


moves = st.lists(st.tuples(places, pairs), min_size=4, max_size=40)


def played(
    warehouse: Warehouse, found: list[tuple[Instant, Parameter]], *, holds: bool, failing: float = 0.0
) -> Outcome:
    changes = [Change(T + at, name, T + at) for at, name in sorted(found)]
    lengths = Spread(10 * MINUTE, 6 * HOUR, failing=failing)
    return simulate(warehouse, changes, since=T, until=T + 100 * DAY, lengths=lengths, holds=holds)


def values_at_the_end(
    warehouse: Warehouse, found: list[tuple[Instant, Parameter]], launches: list[Launch]
) -> dict[Parameter, Instant]:
    produces = {task.name: task.produces for task in warehouse.tasks}
    current: dict[Parameter, Instant] = {}
    for at, name in sorted(found):
        current[name] = T + at
    for launch in launches:
        known = [value for _, _, value in launch.window if value is not None]
        for name in produces[launch.task] if known else ():
            current[name] = max(min(known), current.get(name, min(known)))
    return current


@given(warehouses(), moves, st.booleans())
def test_nothing_is_lost_and_nothing_waits_for_ever(
    warehouse: Warehouse,
    found: list[tuple[Instant, Parameter]],
    holds: bool,  # noqa: FBT001
) -> None:
    outcome = played(warehouse, found, holds=holds)
    assert {each.outcome for each in outcome.launches} <= {"done"}
    current = values_at_the_end(warehouse, found, outcome.launches)
    values = {name: to_datetime(value) for name, value in current.items()}
    for task in warehouse.tasks:
        done = [each for each in outcome.launches if each.task == task.name]
        seen = {name: to_datetime(value) for each in done for name, _, value in each.window if value is not None}
        assert not task.trigger.check(to_datetime(T + 100 * DAY), values, seen).fired


def test_what_is_made_of_two_reaches_as_far_as_the_lesser() -> None:
    """Nobody has moved it before, and the one that is read first lies further ahead."""
    (a, b, c), span = NAMES[:3], "60min"
    maker = Task("maker", All(Delta(*b, span), Delta(*a, span)), "p", 0, (c,), 0)
    taker = Task("taker", Delta(*c, span), "p", 0, (), 0)
    outcome = played(Warehouse((maker, taker), (Pool("p"),)), [(0, a), (10 * MINUTE, b)], holds=False)
    assert [(each.task, [value for _, _, value in each.window]) for each in outcome.launches] == [
        ("maker", [T + 10 * MINUTE, T]),
        ("taker", [T]),
    ]


@given(warehouses(), moves, st.booleans(), st.sampled_from([0.0, 0.4]))
def test_no_run_too_many(
    warehouse: Warehouse,
    found: list[tuple[Instant, Parameter]],
    holds: bool,  # noqa: FBT001
    failing: float,
) -> None:
    outcome = played(warehouse, found, holds=holds, failing=failing)
    for pool in warehouse.pools:
        if pool.name in outcome.pools:
            least = [each for each in (pool.max_parallel, warehouse.slots) if each is not None]
            assert outcome.pools[pool.name].peak_running <= min(least, default=99)
    for task in warehouse.tasks:
        mine = sorted((each for each in outcome.launches if each.task == task.name), key=lambda each: each.fired_at)
        for sooner, later in pairwise(mine):
            assert sooner.ended_at is not None
            assert sooner.ended_at <= later.fired_at
            assert later.started_at - sooner.started_at >= (task.min_interval or 0)
        for each in mine:
            seen = {name: to_datetime(value) for name, value, _ in each.window if value is not None}
            values = {name: to_datetime(value) for name, _, value in each.window if value is not None}
            assert task.trigger.check(to_datetime(each.started_at), values, seen).fired


@given(warehouses(), moves)
def test_a_plan_of_holds_stands_until_something_related_moves(
    warehouse: Warehouse, found: list[tuple[Instant, Parameter]]
) -> None:
    remembered = Waits.plan

    def anew(waits: Waits, now: Instant, lanes: Mapping[str, Lane]) -> Plan:
        waits._last = None
        return remembered(waits, now, lanes)

    outcome = played(warehouse, found, holds=True)
    with patch.object(Waits, "plan", anew):
        assert played(warehouse, found, holds=True).digest == outcome.digest
