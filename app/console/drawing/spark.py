"""How many of something there were in each of some minutes, as a row of small bars; and the same in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, GAP = 300.0, 40.0, 1.0
#: What is there is seen.
LEAST = 1.5


@dataclass(frozen=True)
class Bar:
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Spark:
    """`most`: in one minute; of minutes that are `bounded` no more was counted."""

    bars: tuple[Bar, ...]
    total: int
    most: int
    last: int
    bounded: bool
    width: float = WIDTH
    height: float = HEIGHT


def draw(counts: Sequence[int], bound: int) -> Spark:
    """The oldest on the left; the largest is as high as the picture."""
    most, step = max(counts, default=0), WIDTH / max(1, len(counts))
    bars = tuple(_bar(number * step, step - GAP, count / most) for number, count in enumerate(counts) if count)
    return Spark(bars, sum(counts), most, counts[-1] if counts else 0, most >= bound)


def _bar(x: float, width: float, part: float) -> Bar:
    height = max(LEAST, part * HEIGHT)
    return Bar(round(x, 2), round(HEIGHT - height, 2), round(width, 2), round(height, 2))
