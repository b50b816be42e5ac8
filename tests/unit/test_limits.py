"""`limits.grant`: how many calls a claim may have, and when each may begin. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.limits import HORIZON, Limits, grant


def test_without_limits_all_is_granted_at_once() -> None:
    granted = grant(Limits(), live=1000, want=50)
    assert (granted.count, set(granted.pace), granted.paced) == (50, {0.0}, False)


@pytest.mark.parametrize("limits", [Limits(paused=True), Limits(paused=True, rate=10.0), Limits(max_parallel=3)])
def test_paused_or_full_grants_nothing(limits: Limits) -> None:
    assert grant(limits, live=3, want=50).count == 0


def test_max_parallel_counts_claims_not_calls() -> None:
    # S15: a batch that is worked through one by one is one call at a time.
    assert grant(Limits(max_parallel=3), live=2, want=50).count == 50


def test_nothing_wanted_costs_nothing() -> None:
    assert grant(Limits(rate=10.0, tokens=1.0), live=0, want=0).spent(0) == 1.0


def test_a_rate_grants_what_may_be_called_within_a_second() -> None:
    granted = grant(Limits(rate=5.0, burst=2.0, tokens=2.0), live=0, want=50)
    assert granted.count == 2 + 5
    assert granted.pace == pytest.approx((0.0, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0))
    assert granted.spent(granted.count) == -5.0


def test_what_was_not_taken_is_not_paid_for() -> None:
    granted = grant(Limits(rate=5.0, burst=2.0, tokens=2.0), live=0, want=50)
    assert granted.spent(0) == 2.0


def test_a_slow_rate_waits_until_a_call_is_near() -> None:
    slow = Limits(rate=0.1, burst=1.0, tokens=0.0)
    assert grant(slow, 0, 1).count == 0
    assert grant(replace(slow, idle=8.9), 0, 1).count == 0
    assert grant(replace(slow, idle=9.0), 0, 1).pace == pytest.approx((1.0,))
    assert grant(replace(slow, idle=600.0), 0, 50).pace == (0.0,)


@st.composite
def claims(draw: st.DrawFn) -> list[tuple[float, int, float]]:
    """Idle time before each claim, how much it wants, and the part of what it gets that is taken."""
    return draw(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 60), st.sampled_from([0.0, 0.3, 1.0])), min_size=1))


@given(rate=st.floats(0.05, 100), burst=st.floats(1, 20), sequence=claims())
@example(rate=10.0, burst=1.0, sequence=[(0.0, 1, 1.0)] * 30)
def test_no_window_sees_more_calls_than_burst_and_rate_allow(
    rate: float, burst: float, sequence: list[tuple[float, int, float]]
) -> None:
    # S15: over any time t no more than burst + rate·t calls begin.
    now, tokens, begun = 0.0, burst, list[float]()
    for idle, want, part in sequence:
        now += idle
        granted = grant(Limits(rate=rate, burst=burst, tokens=tokens, idle=idle), 0, want)
        assert granted.count <= want
        assert all(0.0 <= at <= HORIZON + 1e-6 for at in granted.pace)
        taken = int(granted.count * part)
        begun += [now + at for at in granted.pace[:taken]]
        tokens = granted.spent(taken)
    begun.sort()
    for i, first in enumerate(begun):
        for j in range(i, len(begun)):
            assert j - i + 1 <= burst + rate * (begun[j] - first) + 1e-6


@given(rate=st.floats(0.5, 100), burst=st.floats(1, 20), seconds=st.integers(3, 20))
def test_a_busy_queue_gets_its_whole_rate(rate: float, burst: float, seconds: int) -> None:
    tokens, calls, step = burst, 0, 0.25
    for _ in range(int(seconds / step)):
        granted = grant(Limits(rate=rate, burst=burst, tokens=tokens, idle=step), 0, 1000)
        calls += granted.count
        tokens = granted.spent(granted.count)
    assert calls >= int(rate * seconds) - 1
