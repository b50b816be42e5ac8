"""The timers of the index by themselves: who is woken, when the next one is due, and what is remembered for it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triggers.index.timers import _STALE, Timers
from triggers.instants import Instant


@dataclass(eq=False)
class Group:
    """Its leaves lapse at that time."""

    at: Instant | None = None
    armed: Instant | None = None

    def lapses(self) -> Instant | None:
        return self.at


def timers_of(*times: Instant | None) -> tuple[Timers[Group], list[Group]]:
    timers, groups = Timers[Group](), [Group(each) for each in times]
    for each in groups:
        timers.add(each)
        timers.arm(each, each.at)
    return timers, groups


# Who is woken


def test_a_base_that_moves_forward_wakes_those_whose_time_has_come() -> None:
    timers, (late, early, never, exact) = timers_of(30, 10, None, 20)
    assert timers.woken(0, 9) == []
    assert timers.woken(9, 20) == [early, exact]
    assert (late.armed, early.armed, never.armed, exact.armed) == (30, None, None, None)
    assert timers.woken(20, 29) == []
    assert timers.woken(29, 100) == [late]


@pytest.mark.parametrize(("before", "value"), [(None, 5), (5, None), (5, 4)])
def test_a_base_that_comes_or_goes_or_moves_back_wakes_all(before: int | None, value: int | None) -> None:
    timers, groups = timers_of(30, None)
    assert set(timers.woken(before, value)) == set(groups)


def test_a_base_that_stays_wakes_nobody() -> None:
    timers, _ = timers_of(30, None)
    assert timers.woken(5, 5) == []


def test_a_group_that_is_gone_is_woken_no_more_and_is_no_timer() -> None:
    timers, (gone, other) = timers_of(10, 20)
    timers.discard(gone)
    assert timers.next() == 20
    assert timers.woken(None, 5) == (other,)
    assert timers.woken(5, 30) == [other]


def test_woken_once_it_is_woken_again_only_if_it_is_armed_again() -> None:
    timers, (group,) = timers_of(10)
    assert timers.woken(0, 10) == [group]
    assert timers.woken(10, 20) == []
    timers.arm(group, 30)
    assert timers.woken(20, 30) == [group]


def test_what_was_armed_anew_for_earlier_is_woken_once() -> None:
    timers, (group, _) = timers_of(20, 40)
    timers.arm(group, 10)
    assert timers.woken(0, 30) == [group]


# The next one


def test_next_is_the_earliest() -> None:
    timers, _ = timers_of(30, 10, None, 20)
    assert timers.next() == 10
    assert timers_of(None)[0].next() is None


def test_one_that_is_armed_too_early_stays_so_and_is_looked_at_again() -> None:
    timers, (group,) = timers_of(10)
    group.at = 30
    timers.arm(group, 30)
    assert group.armed == 10
    assert (timers.next(), group.armed) == (30, 30)


def test_one_that_lapses_no_more_is_no_timer_until_it_is_armed_again() -> None:
    timers, (group,) = timers_of(10)
    group.at = None
    assert (timers.next(), group.armed) == (None, None)
    group.at = 50
    timers.arm(group, 50)
    assert (timers.next(), group.armed) == (50, 50)


def test_what_is_armed_for_no_time_stays_as_it_is() -> None:
    timers, (group,) = timers_of(10)
    timers.arm(group, None)
    assert (group.armed, timers.next()) == (10, 10)


# Three groups, at most ten ahead: they meet.
changes = st.tuples(st.integers(0, 2), st.none() | st.integers(1, 10))


@given(st.lists(changes | st.integers(1, 5), max_size=30))
def test_next_is_exact_and_nobody_is_woken_late(steps: list[tuple[int, int | None] | int]) -> None:
    timers, groups = timers_of(None, None, None)
    now = 0
    for step in steps:
        if isinstance(step, int):
            woken = timers.woken(now, now + step)
            now += step
            due = {each for each in groups if each.at is not None and each.at <= now}
            assert due <= set(woken)
            for each in woken:
                each.at = None if each in due else each.at
                timers.arm(each, each.at)
        else:
            number, ahead = step
            groups[number].at = None if ahead is None else now + ahead
            timers.arm(groups[number], groups[number].at)
        assert timers.next() == min((each.at for each in groups if each.at is not None), default=None)


# What is remembered


def test_armed_again_for_the_same_time_it_is_remembered_once() -> None:
    timers, (group,) = timers_of(10)
    timers.arm(group, 10)
    assert len(timers._heap) == 1


def test_what_counts_no_more_is_let_go_of_and_what_counts_is_kept_in_order() -> None:
    count = 50
    timers, groups = timers_of(*range(1000, 1000 + count))
    for earlier in range(count + _STALE):
        timers.arm(groups[0], 999 - earlier)
    assert len(timers._heap) == 2 * count + _STALE
    timers.arm(groups[0], 1)
    assert len(timers._heap) == count
    found = [(at, group) for at in range(1, 1000 + count) for group in timers.woken(at - 1, at)]
    assert found == [(1, groups[0]), *zip(range(1001, 1000 + count), groups[1:], strict=True)]
