"""What is held back, for whom and how long (T21); and that holding never locks anything up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ranks import ANY_RANK, most_rank
from triggers.holding import Hold, LiveRun, Plan, PoolNow, TaskNow, plan

X, Y, Z = ("dds.x", "to"), ("dds.y", "to"), ("dds.z", "to")
POOL = PoolNow("p", 2, 100)


def task(name: str, priority: int = 0, *, pool: str = "p", **more: object) -> TaskNow:
    sets = {key: frozenset(value) for key, value in more.items() if isinstance(value, set)}
    return TaskNow(name, pool, priority, **{**more, **sets})  # type: ignore[arg-type]


LOW = task("low", -5)
CONSUMER = task("consumer", 10, lacking={X})
OTHER = task("another", 5, lacking={X})
PRODUCER = task("producer", produces={X}, run=LiveRun(1, running=True))
QUEUED = task("producer", produces={X}, run=LiveRun(1))
SECOND = task("second", produces={X}, run=LiveRun(2, running=True))


def consumers(found: Plan, pool: str = "p") -> list[tuple[str, int, int, int, int]]:
    return [
        (each.consumer, each.priority, each.producer_run, each.since, each.until)
        for each in found.reservations.get(pool, ())
    ]


# Who is waited for


def reserved_ranks(found: Plan, pool: str) -> list[int]:
    return [each.rank for each in found.reservations.get(pool, ())]


def test_a_slot_is_kept_while_the_producer_runs() -> None:
    found = plan(7, [LOW, CONSUMER, PRODUCER], [POOL])
    assert consumers(found) == [("consumer", 10, 1, 7, 107)]
    assert found.inherited == {}


def test_a_slot_is_kept_while_the_producer_is_queued_and_it_inherits() -> None:
    found = plan(7, [LOW, CONSUMER, QUEUED], [POOL])
    assert consumers(found) == [("consumer", 10, 1, 7, 107)]
    assert found.inherited == {1: 10}


@pytest.mark.parametrize("priority", [10, 11])
def test_a_producer_that_has_the_priority_or_a_higher_one_inherits_nothing(priority: int) -> None:
    high = task("producer", priority, produces={X}, run=LiveRun(1))
    assert plan(0, [LOW, CONSUMER, high], [POOL]).inherited == {}


def test_of_several_that_wait_for_one_run_it_inherits_the_highest_priority() -> None:
    assert plan(0, [LOW, CONSUMER, OTHER, QUEUED], [POOL]).inherited == {1: 10}


def test_nothing_is_kept_where_nobody_delivers_or_nobody_waits() -> None:
    idle = task("producer", produces={X})
    for tasks in (
        [LOW, CONSUMER],
        [LOW, CONSUMER, idle],
        [LOW, task("consumer", 10), PRODUCER],
        [LOW, task("consumer", 10, lacking={Y}), PRODUCER],
        [LOW, task("consumer", 10, lacking={X}, startable=False), PRODUCER],
        [LOW, task("consumer", 10, lacking={X}, run=LiveRun(2)), PRODUCER],
        [CONSUMER, PRODUCER],
        [task("high", 10), CONSUMER, PRODUCER],
    ):
        assert plan(0, tasks, [POOL]) == Plan({}, {})


def test_a_pool_without_limit_holds_nothing_but_priority_is_inherited() -> None:
    found = plan(0, [LOW, CONSUMER, QUEUED], [PoolNow("p", None, 100)])
    assert (found.reservations, found.inherited) == ({}, {1: 10})


def test_priority_goes_through_tasks_that_have_no_run() -> None:
    middle = task("middle", 1, produces={X}, lacking={Y})
    source = task("source", 0, produces={Y}, run=LiveRun(3))
    found = plan(0, [LOW, CONSUMER, middle, source], [POOL])
    assert found.inherited == {3: 10}
    # Next to start is the middle one, and it is waited for as much as the consumer is.
    assert [each[:3] for each in consumers(found)] == [("middle", 10, 3)]


def test_a_chain_ends_at_a_task_that_cannot_start() -> None:
    middle = task("middle", 1, produces={X}, lacking={Y}, startable=False)
    source = task("source", 0, produces={Y}, run=LiveRun(3))
    assert plan(0, [LOW, CONSUMER, middle, source], [POOL]) == Plan({}, {})


def test_what_does_not_wait_ends_its_own_chain_only() -> None:
    # Of those that produce the same, in the order of their names: the last is looked at first.
    middle = task("middle", produces={X}, lacking={Y})
    nothing = task("nothing", produces={X})
    source = task("source", produces={Y}, run=LiveRun(3))
    assert plan(0, [LOW, CONSUMER, middle, nothing, source], [POOL]).inherited == {3: 10}


def test_circles_are_gone_through_once() -> None:
    one = task("one", 1, produces={X}, lacking={Y, Z})
    two = task("two", 2, produces={Y}, lacking={X})
    source = task("source", 0, produces={Z}, run=LiveRun(3))
    found = plan(0, [LOW, one, two, source], [POOL])
    assert found.inherited == {3: 2}


def test_one_slot_for_a_task_that_waits_for_several() -> None:
    wants = task("consumer", 10, lacking={X, Y})
    other = task("other", produces={Y}, run=LiveRun(2, running=True))
    found = plan(50, [LOW, wants, PRODUCER, other], [POOL], [Hold("consumer", 1, 10)])
    assert consumers(found) == [("consumer", 10, 2, 50, 150)]
    assert found.holds == (Hold("consumer", 1, 10), Hold("consumer", 2, 50))


def test_each_in_its_own_pool() -> None:
    found = plan(
        0, [LOW, task("low", pool="q"), task("far", 5, pool="q", lacking={X}), PRODUCER], [POOL, PoolNow("q", 1, 9)]
    )
    assert found.reservations.keys() == {"q"}
    assert consumers(found, "q") == [("far", 5, 1, 0, 9)]


def test_a_pool_without_limit_keeps_nothing_from_the_others() -> None:
    far = task("far", 20, pool="q", lacking={X})
    found = plan(0, [LOW, far, CONSUMER, PRODUCER], [POOL, PoolNow("q", None, 100)])
    assert found.reservations.keys() == {"p"}
    assert consumers(found) == [("consumer", 10, 1, 0, 100)]


@pytest.mark.parametrize("held_before", [1, 2])
def test_of_several_runs_that_deliver_the_slot_is_kept_for_the_one_whose_hold_lasts_longest(held_before: int) -> None:
    tasks = [LOW, CONSUMER, PRODUCER, SECOND]
    found = plan(50, tasks, [POOL], [Hold("consumer", held_before, 10)])
    assert consumers(found) == [("consumer", 10, 3 - held_before, 50, 150)]


@pytest.mark.parametrize("runs", [(1, 2), (2, 1)])
def test_of_runs_whose_holds_last_as_long_it_is_the_first(runs: tuple[int, int]) -> None:
    producers = [task(name, produces={X}, run=LiveRun(run)) for name, run in zip("ab", runs, strict=True)]
    assert consumers(plan(0, [LOW, CONSUMER, *producers], [POOL])) == [("consumer", 10, 1, 0, 100)]


def test_what_is_kept_is_ordered_by_priority_and_known_by_its_ranks() -> None:
    found = plan(0, [LOW, OTHER, CONSUMER, PRODUCER], [POOL])
    assert [each[:2] for each in consumers(found)] == [("consumer", 10), ("another", 5)]
    assert (reserved_ranks(found, "p"), reserved_ranks(found, "q")) == ([-10, -5], [])


def test_holds_are_ordered_by_name() -> None:
    found = plan(7, [LOW, OTHER, CONSUMER, PRODUCER], [POOL])
    assert found.holds == (Hold("another", 1, 7), Hold("consumer", 1, 7))
    assert plan(8, [LOW, OTHER, CONSUMER, PRODUCER], [POOL], found.holds[::-1]).holds == found.holds


# For how long


def test_a_hold_keeps_its_beginning_and_ends() -> None:
    tasks = [LOW, CONSUMER, PRODUCER]
    first = plan(7, tasks, [POOL])
    later = plan(106, tasks, [POOL], first.holds)
    assert consumers(later) == [("consumer", 10, 1, 7, 107)]
    spent = plan(107, tasks, [POOL], later.holds)
    assert consumers(spent) == []
    assert consumers(plan(10_000, tasks, [POOL], spent.holds)) == []


def test_a_hold_that_is_spent_ends_no_other() -> None:
    found = plan(107, [LOW, CONSUMER, OTHER, PRODUCER], [POOL], [Hold("consumer", 1, 7)])
    assert consumers(found) == [("another", 5, 1, 107, 207)]


def test_another_run_of_the_producer_is_held_for_anew() -> None:
    again = task("producer", produces={X}, run=LiveRun(2))
    found = plan(500, [LOW, CONSUMER, again], [POOL], [Hold("consumer", 1, 7)])
    assert consumers(found) == [("consumer", 10, 2, 500, 600)]
    assert found.holds == (Hold("consumer", 2, 500),)


def test_what_was_spent_stays_so_when_the_wait_is_interrupted() -> None:
    not_now = [LOW, task("consumer", 10, lacking={X}, startable=False), PRODUCER]
    remembered = plan(200, not_now, [POOL], [Hold("consumer", 1, 7)]).holds
    assert consumers(plan(201, [LOW, CONSUMER, PRODUCER], [POOL], remembered)) == []


def test_inheriting_outlasts_the_hold() -> None:
    found = plan(500, [LOW, CONSUMER, QUEUED], [POOL], [Hold("consumer", 1, 7)])
    assert (found.reservations, found.inherited) == ({}, {1: 10})


# At the claim


def test_most_rank() -> None:
    assert most_rank(None, 1000, [-10]) == ANY_RANK
    assert most_rank(2, 2, []) is None
    assert most_rank(2, 3, []) is None
    assert most_rank(2, 1, []) == ANY_RANK
    assert most_rank(2, 0, [-10]) == ANY_RANK
    assert most_rank(2, 1, [-10]) == -10
    assert most_rank(3, 1, [-1, -10, -5]) == -5


@given(st.integers(1, 8), st.integers(0, 9), st.lists(st.integers(-9, 9), max_size=9), st.integers(-9, 9))
def test_most_rank_is_the_rule(max_parallel: int, running: int, reserved: list[int], rank: int) -> None:
    allowed = max_parallel - running - sum(-each > -rank for each in reserved) >= 1
    most = most_rank(max_parallel, running, reserved)
    assert allowed == (most is not None and rank <= most)


# What holds for every plan

PARAMETERS = [X, Y, Z, ("dds.u", "to")]
sets = st.frozensets(st.sampled_from(PARAMETERS), max_size=3)
pools = st.tuples(*(st.builds(PoolNow, st.just(name), st.none() | st.integers(1, 3), st.just(100)) for name in "pq"))


@st.composite
def worlds(draw: st.DrawFn) -> list[TaskNow]:
    found = []
    for number in range(draw(st.integers(1, 8))):
        run = draw(st.none() | st.builds(LiveRun, st.just(number), st.booleans()))
        lacking = draw(sets) if run is None else frozenset()
        pool, priority = draw(st.sampled_from("pq")), draw(st.integers(-3, 3))
        found.append(TaskNow(f"t{number}", pool, priority, draw(sets), lacking, draw(st.booleans()), run))
    return found


@given(worlds(), pools)
def test_the_order_of_facts_does_not_matter(tasks: list[TaskNow], limits: tuple[PoolNow, ...]) -> None:
    assert plan(0, tasks, limits) == plan(0, list(reversed(tasks)), limits[::-1])


@given(worlds(), pools)
def test_never_holds_where_slots_suffice(tasks: list[TaskNow], limits: tuple[PoolNow, ...]) -> None:
    found = plan(0, tasks, limits)
    for pool in limits:
        running = sum(each.pool == pool.name and each.run is not None and each.run.running for each in tasks)
        reserved = reserved_ranks(found, pool.name)
        if pool.max_parallel is None or running + len(reserved) < pool.max_parallel:
            assert most_rank(pool.max_parallel, running, reserved) == ANY_RANK


@given(worlds(), pools)
def test_the_most_important_that_waits_is_held_only_for_what_runs(
    tasks: list[TaskNow], limits: tuple[PoolNow, ...]
) -> None:
    """So when nothing runs, something can start: whoever is held waits for work that is being done."""
    found = plan(0, tasks, limits)
    waiting = {each.run.id: each for each in tasks if each.run is not None and not each.run.running}
    if not waiting:
        return
    priority = {run: max(each.priority, found.inherited.get(run, each.priority)) for run, each in waiting.items()}
    best = max(priority, key=lambda run: priority[run])
    above = [each for each in found.reservations.get(waiting[best].pool, ()) if each.priority > priority[best]]
    assert not [each for each in above if each.producer_run in waiting]


@given(worlds(), pools, st.lists(st.integers(0, 60), min_size=1, max_size=8))
def test_holds_end(tasks: list[TaskNow], limits: tuple[PoolNow, ...], steps: list[int]) -> None:
    now, holds = 0, plan(0, tasks, limits).holds
    for step in [*steps, 100]:
        now += step
        found = plan(now, tasks, limits, holds)
        assert all(each.since <= now < each.until for kept in found.reservations.values() for each in kept)
        holds = found.holds
    assert found.reservations == {}
