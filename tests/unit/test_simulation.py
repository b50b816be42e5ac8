"""The simulation of a warehouse: that it does what the rules say, and what the rules lead to over weeks and a year."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from app.errors import BadRequest
from triggers.dsl import caught_up, fresh, grown, new_chunk, new_day, new_month, new_week
from triggers.instants import DAY, HOUR, MINUTE, SECOND, Instant, to_datetime, to_instant
from triggers.simulation import (
    Change,
    Constant,
    Outcome,
    Pool,
    Spread,
    Task,
    Warehouse,
    compare,
    simulate,
)
from triggers.trigger import All, Trigger
from triggers.verdict import Parameter

X, Y, Z = ("dds.x", "to"), ("dds.y", "to"), ("dds.z", "to")
T: Instant = to_instant(datetime(2026, 7, 1, tzinfo=UTC))


def steady(parameter: Parameter, every: int, until: int = DAY, begin: int = 0) -> Iterator[Change]:
    """It is always up to date when it comes."""
    return (Change(T + at, parameter, T + at) for at in range(begin, until, every))


def at(outcome: Outcome, task: str) -> list[tuple[int, int]]:
    """Fired and started, from the beginning."""
    return [(each.fired_at - T, each.started_at - T) for each in outcome.launches if each.task == task]


def one(trigger: Trigger, **more: object) -> Warehouse:
    return Warehouse((Task("t", trigger, **more),))  # type: ignore[arg-type]


# One task


def test_a_delta_fires_by_what_was_seen_at_the_last_run() -> None:
    # T11, T12
    found = simulate(one(grown(*X, by="2h")), steady(X, HOUR), since=T, until=T + 7 * HOUR)
    assert at(found, "t") == [(0, 0), (2 * HOUR, 2 * HOUR), (4 * HOUR, 4 * HOUR), (6 * HOUR, 6 * HOUR)]
    assert found.launches[1].window == ((X, T, T + 2 * HOUR),)


def test_what_was_seen_before_counts() -> None:
    start = Warehouse((Task("t", grown(*X, by="2h")),), current={X: T - HOUR}, seen={"t": {X: T - HOUR}})
    assert at(simulate(start, steady(X, HOUR), since=T, until=T + 3 * HOUR), "t") == [(HOUR, HOUR)]


def test_a_change_during_a_run_leads_to_another_when_it_ends() -> None:
    # T16
    changes = [Change(T, X, T), Change(T + 5 * MINUTE, X, T + HOUR), Change(T + 6 * MINUTE, X, T + 2 * HOUR)]
    found = simulate(one(grown(*X, by="1h")), changes, since=T, until=T + DAY, lengths=Constant(10 * MINUTE))
    assert at(found, "t") == [(0, 0), (10 * MINUTE, 10 * MINUTE)]


def test_baseline_takes_what_is_there_for_seen() -> None:
    found = simulate(one(grown(*X, by="2h"), first_run="baseline"), steady(X, HOUR), since=T, until=T + 4 * HOUR)
    assert at(found, "t") == [(2 * HOUR, 2 * HOUR)]


def test_min_interval_counts_from_start_to_start() -> None:
    found = simulate(
        one(fresh(*X, within="1h"), min_interval=30 * MINUTE),
        [Change(T, X, T)],
        since=T,
        until=T + DAY,
        lengths=Constant(MINUTE),
    )
    assert [fired for fired, _ in at(found, "t")] == [0, 30 * MINUTE, 60 * MINUTE]


def test_a_run_that_goes_on_at_the_end_is_told() -> None:
    found = simulate(one(new_day(*X)), [Change(T, X, T)], since=T, until=T + MINUTE, lengths=Constant(HOUR))
    assert [(each.outcome, each.ended_at) for each in found.launches] == [("running", None)]


def test_failures_back_off_and_end_in_quarantine_until_the_input_moves() -> None:
    # T22
    always = Spread(SECOND, SECOND, failing=1.0)
    task = one(new_day(*X), max_failures=3, backoff=10 * SECOND)
    found = simulate(task, steady(X, DAY, 2 * DAY), since=T, until=T + 2 * DAY, lengths=always)
    assert [(each.outcome, each.attempts, each.ended_at) for each in found.launches] == [
        ("failed", 3, T + 33 * SECOND),
        ("failed", 3, T + DAY + 33 * SECOND),
    ]
    assert found.quarantined == ("t",)


def test_a_window_that_nobody_used_is_missed() -> None:
    # T23
    tasks = (Task("long", grown(*Y, by="1h"), pool="p"), Task("t", fresh(*X, within="10min"), pool="p"))
    start = Warehouse(tasks, (Pool("p", max_parallel=1),))
    changes = [Change(T, Y, T), Change(T + MINUTE, X, T)]
    found = simulate(start, changes, since=T, until=T + DAY, lengths=Constant(HOUR))
    assert at(found, "t") == []
    assert [(each.task, each.opened_at - T, each.closed_at - T, each.why) for each in found.missed] == [
        ("t", MINUTE, 10 * MINUTE + 1, "waiting")
    ]


def test_on_lapse_run_runs_all_the_same() -> None:
    tasks = (Task("long", grown(*Y, by="1h")), Task("t", fresh(*X, within="10min"), on_lapse="run", min_interval=DAY))
    changes = [Change(T, Y, T), Change(T + MINUTE, X, T)]
    found = simulate(Warehouse(tasks, (Pool("default", 1),)), changes, since=T, until=T + DAY, lengths=Constant(HOUR))
    assert at(found, "t") == [(MINUTE, HOUR)]


def test_what_a_run_produces_starts_others() -> None:
    tasks = (Task("a", grown(*X, by="1h"), produces=(Y,)), Task("b", caught_up(*Y, with_=X), min_interval=HOUR))
    start, changes = Warehouse(tasks), [Change(T + HOUR, X, T + HOUR)]
    found = simulate(start, changes, since=T, until=T + 90 * MINUTE)
    assert at(found, "b") == [(61 * MINUTE, 61 * MINUTE)]
    assert at(simulate(start, changes, since=T, until=T + 90 * MINUTE, delivers=False), "b") == []


# What cannot be


def test_what_cannot_be_simulated_is_refused() -> None:
    task = one(new_day(*X))
    with pytest.raises(BadRequest, match="does not lie after the beginning"):
        simulate(task, [], since=T, until=T)
    with pytest.raises(BadRequest, match=r"of dds\.x\.to at .*:00Z comes after .*: sort the changes"):
        simulate(task, [Change(T + HOUR, X, T), Change(T + MINUTE, X, T)], since=T, until=T + DAY)
    with pytest.raises(BadRequest, match="'t' is given twice"):
        simulate(Warehouse(task.tasks * 2), [], since=T, until=T + DAY)
    with pytest.raises(BadRequest, match="must be a share"):
        Spread(SECOND, SECOND, failing=2)
    with pytest.raises(BadRequest, match="shorter length first"):
        Spread(SECOND, 1)
    free_running = one(fresh(*X, within="1d"))
    with pytest.raises(BadRequest, match=r"more than 5000 launches, .* of them of t: give it a min_interval"):
        simulate(free_running, [Change(T, X, T)], since=T, until=T + DAY, lengths=Constant(SECOND), most=5000)


# The same again


def herd(tasks: int, **more: object) -> tuple[Task, ...]:
    return tuple(Task(f"t{number:04}", new_day(*X), **more) for number in range(tasks))  # type: ignore[arg-type]


def test_the_same_input_gives_the_same_digest() -> None:
    lengths = Spread(SECOND, HOUR, seed=1, failing=0.2)
    start = Warehouse(herd(30), (Pool("default", 3),))

    def digest(warehouse: Warehouse, keep: bool = True, seed: int = 1) -> str:  # noqa: FBT001
        drawn = lengths if seed == 1 else Spread(SECOND, HOUR, seed=seed)
        return simulate(warehouse, steady(X, DAY), since=T, until=T + DAY, lengths=drawn, keep=keep).digest

    assert digest(start) == digest(start) == digest(start, keep=False)
    assert digest(start) == digest(Warehouse(start.tasks[::-1], start.pools))
    assert digest(start) != digest(start, seed=2)
    assert digest(start) != digest(Warehouse(start.tasks, (Pool("default", 4),)))


def test_compare_tells_what_is_added_and_gone() -> None:
    before = simulate(one(grown(*X, by="2h")), steady(X, HOUR), since=T, until=T + 7 * HOUR)
    after = simulate(one(grown(*X, by="3h")), steady(X, HOUR), since=T, until=T + 7 * HOUR)
    found = compare(before, after)
    assert [each.fired_at - T for each in found.added] == [3 * HOUR]
    assert [each.fired_at - T for each in found.gone] == [2 * HOUR, 4 * HOUR]
    assert found.same == 2
    assert compare(before, after, {"other"}).added == ()


# Admission


@pytest.mark.parametrize(("limit", "slots"), [(1, None), (7, None), (None, 7), (50, 20)])
def test_a_herd_never_exceeds_its_limit(limit: int | None, slots: int | None) -> None:
    # T20
    start = Warehouse(herd(100), (Pool("default", limit),), slots=slots)
    found = simulate(start, steady(X, DAY), since=T, until=T + 10 * DAY, lengths=Spread(SECOND, HOUR))
    most = min(each for each in (limit, slots) if each is not None)
    assert found.pools["default"].peak_running == most
    assert found.pools["default"].peak_waiting >= 100 - most
    assert set(found.counts.values()) == {1}


def test_a_rate_spreads_the_starts() -> None:
    # T20
    start = Warehouse(herd(30), (Pool("default", rate=0.1),))
    found = simulate(start, steady(X, DAY), since=T, until=T + DAY)
    starts = sorted(each.started_at - T for each in found.launches)
    assert len(starts) == 30
    assert all(9.9 * SECOND <= later - sooner <= 10.1 * SECOND for sooner, later in pairwise(starts))


@pytest.mark.parametrize("distance", [1, 5, 20])
def test_nothing_starves_under_a_stream_of_higher_priority(distance: int) -> None:
    """A run of priority p waits for at most one ageing step more than what lies between it and the stream, and for
    the runs that go on then or have waited as long as it."""
    # T20
    length, streams = 50 * SECOND, 4
    stream = tuple(
        Task(f"s{number}", grown(*X, by="1s"), priority=distance, min_interval=SECOND) for number in range(streams)
    )
    start = Warehouse((*stream, Task("low", new_day(*Y))), (Pool("default", 1, ageing=MINUTE),))
    changes = sorted([*steady(X, SECOND, 2 * HOUR), Change(T + 10 * MINUTE, Y, T)])
    found = simulate(start, changes, since=T, until=T + 2 * HOUR, lengths=Constant(length))
    [(fired, started)] = at(found, "low")
    assert distance * MINUTE - streams * length <= started - fired <= (distance + 1) * MINUTE + (streams + 1) * length


# Holds


def test_hold_and_inheritance_let_the_important_one_through() -> None:
    """A long queue before the producer, and another that takes the slots when it ends: without holds the important one
    waits behind both."""
    # T21
    ahead = tuple(Task(f"a{number}", new_day(*X), priority=1) for number in range(20))
    producer = Task("producer", new_day(*X), produces=(Z,))
    important = Task("important", new_day(*Z), priority=10)
    pools = (Pool("default", 2, ageing=DAY, max_hold=30 * MINUTE),)
    start = Warehouse((*ahead, producer, important), pools, seen={"important": {Z: T - DAY}}, current={Z: T - DAY})

    def waited(*, holds: bool) -> int:
        found = simulate(start, steady(X, DAY), since=T, until=T + DAY, lengths=Constant(20 * MINUTE), holds=holds)
        assert found.total == 22
        [(_, started)] = at(found, "important")
        return started

    assert waited(holds=True) == 20 * MINUTE
    assert waited(holds=False) == 220 * MINUTE


def test_a_hold_keeps_a_slot_and_ends_after_max_hold() -> None:
    # T21
    tasks = (
        Task("producer", new_day(*X), pool="other", produces=(Z,)),
        Task("important", new_day(*Z), priority=10),
        Task("low", new_day(*Y)),
    )

    def low_starts(hold: int, length: int) -> int:
        start = Warehouse(tasks, (Pool("default", 1, ageing=DAY, max_hold=hold),), current={Z: T - DAY})
        start = Warehouse(tasks, start.pools, current=start.current, seen={"important": {Z: T - DAY}})
        changes = [Change(T, X, T), Change(T + MINUTE, Y, T)]
        found = simulate(start, changes, since=T, until=T + DAY, lengths=Constant(MINUTE, {"producer": length}))
        assert found.total == 3
        [(_, started)] = at(found, "low")
        return started

    # After the important one, or when the hold is spent.
    assert low_starts(30 * MINUTE, 10 * MINUTE) == 11 * MINUTE
    assert low_starts(5 * MINUTE, 10 * MINUTE) == 6 * MINUTE


def low_starts(max_hold: int, changes: Iterable[Change], lengths: dict[str, int]) -> int:
    """When it does that fired a minute after the beginning, while a slot is kept for one that never fires."""
    producers = [Task(name, grown(*X, by="1s"), pool="other", produces=(Z,)) for name in lengths]
    tasks = (*producers, Task("important", new_day(*Z), priority=3), Task("low", new_day(*Y)))
    seen = {"important": {Z: T}, **{name: {X: T - SECOND} for name in lengths}}
    start = Warehouse(tasks, (Pool("default", 1, ageing=MINUTE, max_hold=max_hold),), current={Z: T}, seen=seen)
    moved = sorted([*changes, Change(T + MINUTE, Y, T)])
    [(fired, started)] = at(simulate(start, moved, since=T, until=T + DAY, lengths=Constant(0, lengths)), "low")
    assert fired == MINUTE
    return started


def test_ageing_ends_no_hold() -> None:
    # T21
    assert low_starts(DAY, [Change(T, X, T)], {"producer": HOUR}) == HOUR


def test_nothing_starves_while_a_slot_is_kept_for_one_run_after_the_other() -> None:
    """One of two producers works at any time, and what they bring never suffices for the one that waits."""
    # T20: what has waited for `max_hold` ages past what is kept.
    lengths = {"one": 4 * MINUTE, "other": 3 * MINUTE}
    assert low_starts(10 * MINUTE, steady(X, SECOND, HOUR), lengths) == 11 * MINUTE + 1
    assert low_starts(DAY, steady(X, SECOND, HOUR), lengths) >= 12 * MINUTE


# Calendars


@pytest.mark.parametrize(("tz", "begin"), [("Europe/Berlin", (2026, 3, 20)), ("Europe/Berlin", (2026, 10, 15))])
def test_a_daily_task_fires_once_a_local_day_over_a_change_of_clocks(tz: str, begin: tuple[int, int, int]) -> None:
    zone = ZoneInfo(tz)
    since = to_instant(datetime(*begin, tzinfo=zone))
    changes = [Change(since + step * 20 * MINUTE, X, since + step * 20 * MINUTE) for step in range(21 * 72)]
    start = Warehouse((Task("daily", new_day(*X, tz=tz)),))
    found = simulate(start, changes, since=since, until=since + 21 * DAY)
    days = Counter(to_datetime(each.fired_at).astimezone(zone).date() for each in found.launches)
    assert set(days.values()) == {1}
    assert len(days) in (21, 22)
    assert all(to_datetime(each.fired_at).astimezone(zone).hour == 0 for each in found.launches)


def warehouse(tasks: int) -> Warehouse:
    """Three layers over a hundred sources; some tasks are daily, most weekly or monthly, and one in fifty matters."""
    made: list[Task] = []
    below: list[Parameter] = [(f"source{number}", "to") for number in range(100)]
    for layer, size in enumerate((tasks // 2, tasks // 3, tasks - tasks // 2 - tasks // 3)):
        of_layer: list[Parameter] = []
        for number in range(size):
            one, other = below[number * 7 % len(below)], below[(number * 13 + 5) % len(below)]
            fires = (new_month, new_week, new_day)[0 if number % 2 else 1 if number % 10 else 2]
            trigger = All(fires(*one), new_chunk(*other, "week")) if number % 30 == 29 else fires(*one)
            produced = (f"mart{layer}.{number}", "to")
            priority = 10 if number % 50 == 0 else 0
            made.append(Task(f"t{layer}.{number}", trigger, f"p{layer}", priority, (produced,)))
            of_layer.append(produced)
        below = of_layer
    return Warehouse(tuple(made), tuple(Pool(f"p{layer}", 20) for layer in range(3)))


#: Simulated time over time of the processor, at least: a year in less than a minute. Five to ten times that is usual.
RATIO = 600_000


def test_a_year_of_two_thousand_tasks() -> None:
    year = 365
    changes = (
        Change(T + day * DAY + number * MINUTE, (f"source{number}", "to"), T + day * DAY)
        for day in range(year)
        for number in range(100)
    )
    begin = time.process_time()
    found = simulate(
        warehouse(2000), changes, since=T, until=T + year * DAY, lengths=Spread(MINUTE, HOUR, seed=1), keep=False
    )
    ratio = year * 86_400 / (time.process_time() - begin)
    assert found.total > 50_000
    assert len(found.counts) == 2000
    assert all(pool.peak_running <= 20 for pool in found.pools.values())
    assert ratio > RATIO, f"a year took {year * 86_400 / ratio:.0f} s"
