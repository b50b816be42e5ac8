"""How many there were in each minute, as small bars."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.console.drawing import spark


def test_bars_are_as_high_as_there_were_many() -> None:
    found = spark.draw([0, 10, 5], 1_000)
    assert (found.total, found.most, found.last, found.bounded) == (15, 10, 5, False)
    assert [(bar.x, bar.y, bar.height) for bar in found.bars] == [(100.0, 0.0, 40.0), (200.0, 20.0, 20.0)]


def test_where_no_more_is_counted_it_is_told() -> None:
    assert spark.draw([3, 7], 7).bounded
    assert not spark.draw([], 7).bounded
    assert spark.draw([0, 0], 7).bars == ()


@given(st.lists(st.integers(0, 10_000), max_size=80))
def test_every_bar_is_within_the_picture(counts: list[int]) -> None:
    found = spark.draw(counts, 10_000)
    assert len(found.bars) == sum(count > 0 for count in counts)
    for bar in found.bars:
        assert min(bar.x, bar.y) >= 0
        # But for rounding.
        assert max(bar.x + bar.width - found.width, bar.y + bar.height - found.height) < 0.02
        assert bar.height >= spark.LEAST
