"""When a plan that the server keeps is made anew."""

from __future__ import annotations

from itertools import pairwise

from app.prepared import OLD_SECONDS, SLOW_SECONDS, Plan

SLOW = 2 * SLOW_SECONDS


def _made_anew(seconds: float, plan: Plan, until: float) -> list[float]:
    """When, by statements that take so long, one after the other, from the making of the plan on."""
    found = []
    for tenth in range(1, round(until * 10)):
        now = tenth / 10
        if plan.is_over(now):
            plan = plan.next(now)
            found.append(now)
        plan.measured(seconds, now)
    return found


def test_what_is_quick_is_planned_anew_when_it_is_old() -> None:
    assert _made_anew(0.0, Plan(0.0), 2 * OLD_SECONDS + 10) == [OLD_SECONDS + 0.1, 2 * OLD_SECONDS + 0.2]


def test_what_is_slow_is_planned_anew_soon_and_then_ever_more_seldom() -> None:
    made = _made_anew(SLOW, Plan(0.0), 20.0)
    assert made[0] < 1.0
    between = [later - earlier for earlier, later in pairwise(made)]
    assert all(later > earlier - 0.11 for earlier, later in pairwise(between))
    assert 1.5 < between[-1] < 2.5, "but never given up"


def test_what_was_slow_once_is_planned_anew_as_soon_as_ever_after_it_was_old() -> None:
    slow = Plan(0.0, doubled=2)
    assert not slow.is_over(OLD_SECONDS)
    assert slow.next(OLD_SECONDS + 0.1).doubled == 0


def test_what_is_gone_is_planned_anew_at_once() -> None:
    assert Plan(0.0, gone=True).is_over(0.0)
