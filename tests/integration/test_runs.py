"""smoke"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit import reactive as kit
from tests.kit.reactive import ORDERS, World, day
from triggers import ChunkDelta


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with kit.world() as found:
        yield found


def test_x(world: World) -> None:
    t = world.task("a", ChunkDelta(*ORDERS, "day"))
    kit.advance(day(1))
    assert world.step() == 1
    assert kit.seen(t) == {ORDERS: day(1)}
    assert world.step() == 0
    assert kit.violations() == []
