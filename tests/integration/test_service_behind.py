"""The service when much has happened at once, and when the clock was set back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa

from tests.kit import reactive as kit
from tests.kit.reactive import ORDERS, World, day
from tests.kit.service import Follower
from tests.kit.waiting import wait_until
from triggers import ChunkDelta, Delay, Delta
from triggers.model import TASK
from triggers.service import Service, cursor

DAILY = ChunkDelta(*ORDERS, "day")


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with kit.world() as found:
        yield found


def test_full_batches_follow_each_other_without_a_pause(world: World) -> None:
    # T18: no time passes by the service's clock, and nothing else happens.
    for number in range(25):
        world.declare(f"t{number}", DAILY)
    world.sync()
    kit.advance(day(1))
    still = Service(lambda: 1000.0)
    assert still.run_once(10).taken_over
    assert [still.run_once(10).started for _ in range(4)] == [10, 10, 5, 0]


def test_a_comparison_with_too_much_to_follow_loses_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # T19
    for number in range(8):
        world.declare(f"t{number}", Delta(*ORDERS, "1d"))
    world.sync()
    follower = Follower()
    kit.advance(day(1))
    follower.rest()
    while world.serve():
        pass
    follower.rest()
    kit.advance(day(3))
    monkeypatch.setattr(cursor, "LIMIT", 5)
    kit.execute(sa.update(TASK).values(generation=TASK.c.generation + 1))
    follower.service._compare(follower.memory)
    monkeypatch.undo()
    follower.rest()
    assert kit.states().count("waiting") == 8


def test_a_rest_that_the_clock_took_back_ends_all_the_same(world: World) -> None:
    # T10: set back, so that the moment is to come once more; simulated by moving the moment, of which no event tells.
    task = world.task("a", Delay(*ORDERS, "3650d"), min_interval="1h")
    follower = Follower()
    kit.advance(day(1))
    follower.rest()
    world.serve()
    kit.set_task(task, start_after=sa.func.now() + timedelta(seconds=5), generation=TASK.c.generation + 1)
    follower.rest()
    kit.set_task(task, start_after=sa.func.now() + timedelta(seconds=6))
    wait_until(lambda: follower.once().started, 60)
    assert kit.states(task) == ["done", "waiting"]
