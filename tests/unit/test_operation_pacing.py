"""When an operation stops by itself, and when what it restarts is handed out (R11)."""

from __future__ import annotations

import pytest

from recovery.operations.pacing import JUDGED, SPREAD_SECONDS, Fate, delays, jumped

F, B, W, O = Fate.FAILED, Fate.BROKE_AGAIN, Fate.WELL, Fate.OPEN  # noqa: E741


@pytest.mark.parametrize(
    "fates",
    [
        [],
        [F] * (JUDGED - 1),
        [O] * 400,
        [F] * 9 + [O] * 391,
        [O] * 20 + [F] * 9,
        [B] * 19,
        [B] * 9 + [W] * 11,
        # What was judged long ago is not judged again.
        [W] * 20 + [B] * 300,
        [O] * 300 + [W] * 11 + [B] * 9,
    ],
)
def test_it_goes_on(fates: list[Fate]) -> None:
    assert jumped(fates) is None


@pytest.mark.parametrize(
    ("fates", "why"),
    [
        ([F] * 20, "20 of the last 20 items failed"),
        ([F, O] * 10, "10 of the last 20 items failed"),
        ([F] * 10 + [W] * 300, "10 of the last 20 items failed"),
        ([O] * 100 + [B] * 20, "of the last 20 items of which it is known what came of them, 20 failed or broke again"),
        ([B] * 6 + [W] * 10 + [F] * 4, "10 failed or broke again"),
        ([O] * 20 + [B] * 20 + [W] * 300, "20 failed or broke again"),
    ],
)
def test_it_stops(fates: list[Fate], why: str) -> None:
    assert why in (jumped(fates) or "")


def test_turns_are_spread_over_the_time_that_the_rate_has_for_them() -> None:
    assert delays(None, 3, 1.0, lambda: 0.5) == [0.0] * 3
    assert delays(10, 3, 0.0, lambda: 0.5) == pytest.approx([SPREAD_SECONDS + each for each in (0.05, 0.15, 0.25)])
    # What is late comes at once; the next ones in their turn.
    assert delays(10, 3, SPREAD_SECONDS + 0.1, lambda: 0.0) == pytest.approx([0.0, 0.0, 0.1])
