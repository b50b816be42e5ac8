"""`first_run="baseline"` (T12): what is there at first counts as seen, by the pass and by the service."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa

from app.db import engine
from tests.kit import reactive as kit
from tests.kit import service as services
from tests.kit.reactive import ORDERS, World, day
from tests.kit.service import Follower
from triggers import All, Any, ChunkDelta, Delta, RefDelay, operate
from triggers.model import TASK

DAILY = ChunkDelta(*ORDERS, "day")
ITEMS = ("dds.items", "loaded_to")


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with kit.world() as found:
        yield found


@pytest.fixture
def follower(world: World) -> Follower:
    found = Follower()
    found.rest()
    return found


def test_with_a_baseline_what_is_there_at_first_counts_as_seen(world: World) -> None:
    # T12
    kit.advance(day(1))
    task = world.task("a", ChunkDelta(*ORDERS, "day"), first_run="baseline")
    assert world.step() == 0
    assert kit.seen(task) == {ORDERS: day(1)}
    kit.advance(day(2))
    assert world.step() == 1
    assert world.calls.runs[0].window(*ORDERS) == (day(1), day(2))


@pytest.mark.parametrize("state", ["free", "paused", "resting", "running"])
def test_it_is_the_first_value_whatever_else_is_waited_for(world: World, state: str) -> None:
    # T12: not the value with which all of it holds, or with which the task may start.
    trigger = All(Delta(*ORDERS, "1h"), RefDelay(*ORDERS, *ITEMS, "0s"))
    task = world.task("a", trigger, first_run="baseline", min_interval="1d")
    if state == "paused":
        operate.pause(task)
    elif state == "resting":
        kit.execute(sa.update(TASK).values(start_after=sa.func.now() + timedelta(hours=1)))
    elif state == "running":
        operate.start(task)
    kit.advance(day(2), ITEMS)
    kit.advance(day(1))
    assert world.poll().started == 0
    assert kit.seen(task) == {ORDERS: day(1)}
    kit.advance(day(2))
    assert world.poll().started == (state == "free")
    assert kit.seen(task) == {ORDERS: day(1)}
    if state == "free":
        world.serve()
        assert world.calls.runs[0].window(*ORDERS) == (day(1), day(2))


def test_a_baseline_that_comes_while_a_run_waits_is_not_its_increment(world: World) -> None:
    # T12, T25
    trigger = Any(Delta(*ORDERS, "1h"), Delta(*ITEMS, "1h"))
    kit.advance(day(1))
    task = world.task("a", trigger, first_run="baseline")
    kit.advance(day(2))
    assert world.poll().started == 1
    kit.advance(day(5), ITEMS)
    world.serve()
    assert world.calls.runs[0].window(*ORDERS) == (day(1), day(2))
    assert world.calls.runs[0].window(*ITEMS) == (day(5), day(5))
    assert kit.seen(task) == {ORDERS: day(2), ITEMS: day(5)}


def test_a_baseline_waits_for_nobody(world: World) -> None:
    # T12: who holds the task goes on, and the next pass takes it.
    task = world.task("a", All(Delta(*ORDERS, "1h"), Delta(*ITEMS, "1h")), first_run="baseline")
    kit.advance(day(1))
    with engine().connect() as stranger:
        stranger.execute(sa.select(TASK.c.id).where(TASK.c.name == task).with_for_update())
        assert world.poll().started == 0
        assert kit.seen(task) == {}
    assert world.poll().started == 0
    assert kit.seen(task) == {ORDERS: day(1)}


def test_what_moves_between_the_release_and_the_first_pass_is_not_part_of_the_baseline(world: World) -> None:
    # T12
    kit.advance(day(1))
    world.task("a", ChunkDelta(*ORDERS, "day"), first_run="baseline")
    kit.advance(day(2))
    assert world.step() == 1
    assert world.calls.runs[0].window(*ORDERS) == (day(1), day(2))


def test_a_baseline_of_the_pass_beside_it_is_seen(world: World, follower: Follower) -> None:
    # T12
    task = world.task("a", DAILY, first_run="baseline")
    follower.rest()
    kit.advance(day(1))
    world.poll()
    assert kit.seen(task) == {ORDERS: day(1)}
    assert follower.rest() == 0
    assert services.differing(follower.memory) == {}
    kit.advance(day(2))
    assert follower.rest() == 1


@pytest.mark.parametrize("new", [False, True], ids=["follows", "takes over"])
def test_the_service_takes_the_first_value_whatever_else_is_waited_for(world: World, new: bool) -> None:  # noqa: FBT001
    # T12
    task = world.task("a", All(Delta(*ORDERS, "1h"), RefDelay(*ORDERS, *ITEMS, "0s")), first_run="baseline")
    follower = Follower()
    follower.rest()
    kit.advance(day(2), ITEMS)
    kit.advance(day(1))
    if new:
        follower.replace()
    assert follower.rest() == 0
    assert kit.seen(task) == {ORDERS: day(1)}
    assert follower.memory.first == follower.memory.unseen[ORDERS] == set()
    kit.advance(day(2))
    assert follower.rest() == 1
    world.serve()
    assert world.calls.runs[0].window(*ORDERS) == (day(1), day(2))


def test_a_baseline_that_somebody_holds_is_taken_soon(world: World, follower: Follower) -> None:
    # T12
    task = world.task("a", All(Delta(*ORDERS, "1h"), Delta(*ITEMS, "1h")), first_run="baseline")
    follower.rest()
    with engine().connect() as stranger:
        stranger.execute(sa.select(TASK.c.id).where(TASK.c.name == task).with_for_update())
        kit.advance(day(1))
        follower.once()
        assert kit.seen(task) == {}
    follower.rest()
    assert kit.seen(task) == {ORDERS: day(1)}
