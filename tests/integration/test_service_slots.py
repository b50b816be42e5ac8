"""T21: a slot is kept for what is important while something that it waits for is on its way; claims obey exactly."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from app import claims, dispatch
from app.claims import Claim, Cursor
from app.db import transaction
from app.limits import Queue
from app.registry import Waiting
from tests.kit import reactive as kit
from tests.kit.reactive import LEASE, World, day
from tests.kit.service import Follower
from triggers import Delta, endings, operate, pool, pools
from triggers.definition import queue_of
from triggers.model import RUN, ReactiveHold, TaskRun

RAW, MART = ("raw.orders", "p"), ("mart.orders", "p")
LOW = [(f"low{number}", "p") for number in range(4)]
QUEUE = queue_of("marts")


class Stage:
    """A pool of two slots, a stream of unimportant tasks, a producer, and an important task that waits for it."""

    def __init__(self, world: World, max_hold: str = "30min", parallel: int | None = 2) -> None:
        pool("marts", max_parallel=parallel, max_hold=max_hold)
        self.world = world
        self.low = [
            world.declare(f"low{number}", Delta(*each, "1d"), pool="marts", priority=0)
            for number, each in enumerate(LOW)
        ]
        self.producer = world.declare("producer", Delta(*RAW, "1d"), pool="makers", priority=0, produces=[MART])
        self.important = world.declare("important", Delta(*MART, "1d"), pool="marts", priority=10)
        world.sync()
        self.follower = Follower()
        self.follower.rest()
        self.cursor = Cursor(TaskRun, QUEUE)

    def take(self, cursor: Cursor | None = None) -> Claim:
        return claims.take(cursor or self.cursor, 1, worker="w", lease=LEASE)

    def low_wait(self, *numbers: int) -> None:
        for number in numbers:
            kit.advance(day(1), LOW[number])
        self.follower.rest()

    def produce(self) -> None:
        """The producer has a run, that waits."""
        kit.advance(day(1), RAW)
        self.follower.rest()

    def end(self, claim: Claim) -> None:
        with transaction() as session:
            (row,) = claim.rows
            endings.done(session, row, claim.pass_key, {}, lambda: None)

    def time_is_over(self) -> None:
        """As if what is kept had been kept for as long as it may."""
        past = timedelta(minutes=31)
        kit.execute(sa.update(ReactiveHold).values(since=ReactiveHold.since - past, until=ReactiveHold.until - past))
        kit.execute(sa.update(Queue).where(Queue.name == QUEUE).values(kept_until=[datetime.now(UTC) - past]))

    def kept(self) -> list[int]:
        rows = kit.execute(sa.select(Queue.kept_ranks).where(Queue.name == QUEUE))
        return list(rows[0].kept_ranks) if rows else []

    def rank(self, task: str) -> int:
        return int(kit.runs(task)[-1].rank)


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with kit.world() as found:
        yield found


def tasks_of(*taken: Claim) -> list[str]:
    return [row.task for each in taken for row in each.rows]


@pytest.mark.parametrize("running", [False, True])
def test_a_slot_is_kept_while_what_is_waited_for_is_on_its_way(world: World, running: bool) -> None:  # noqa: FBT001
    # T21
    stage = Stage(world)
    stage.produce()
    if running:
        made = claims.take(Cursor(TaskRun, queue_of("makers")), 1, worker="w", lease=LEASE)
        assert tasks_of(made) == [stage.producer]
    stage.low_wait(0, 1, 2)
    assert stage.kept() == [-10]
    first = stage.take()
    assert (len(first.rows), len(stage.take().rows)) == (1, 0), "slots suffice for one, not for a second"
    if not running:
        assert world.serve("makers") == 1
    kit.advance(day(1), MART)
    assert stage.follower.rest() >= 1
    assert stage.kept() == [], "its own run is there"
    assert tasks_of(stage.take()) == [stage.important]
    stage.end(first)
    assert len(stage.take().rows) == 1


def test_nothing_is_kept_when_nothing_is_on_its_way(world: World) -> None:
    stage = Stage(world)
    stage.low_wait(0, 1, 2)
    assert stage.kept() == []
    assert [len(stage.take().rows) for _ in range(3)] == [1, 1, 0]


def test_the_producer_inherits_the_priority_of_whoever_waits(world: World) -> None:
    # T21
    stage = Stage(world)
    stage.produce()
    assert stage.rank(stage.producer) == -10


def test_the_producer_inherits_it_in_pools_without_limits_too(world: World) -> None:
    # T21: workers are few, and the best run goes first.
    stage = Stage(world, parallel=None)
    stage.produce()
    assert (stage.rank(stage.producer), stage.kept()) == (-10, [])


def test_a_slot_is_never_kept_for_longer_than_max_hold(world: World) -> None:
    # T21: by the claim itself, also if no service is there any more; and a hold that is spent does not come again.
    stage = Stage(world)
    stage.produce()
    stage.low_wait(0, 1)
    assert stage.kept() == [-10]
    assert [len(stage.take().rows) for _ in range(2)] == [1, 0]
    stage.time_is_over()
    assert len(stage.take().rows) == 1
    stage.follower.rest()
    stage.follower.once()
    assert stage.kept() == []
    assert len(kit.execute(sa.select(ReactiveHold.task))) == 1, "remembered, as it is spent"
    stage.follower.replace()
    stage.follower.rest()
    stage.follower.once()
    assert stage.kept() == []


def test_no_slot_is_kept_where_that_is_not_wanted(world: World) -> None:
    # T21
    stage = Stage(world, max_hold="0s")
    stage.produce()
    stage.low_wait(0, 1)
    assert [len(stage.take().rows) for _ in range(2)] == [1, 1]


def test_more_important_ones_may_take_a_slot_that_is_kept(world: World) -> None:
    # T21: only against lower priorities.
    stage = Stage(world)
    best = world.task("best", Delta("best", "p", "1d"), pool="marts", priority=20)
    stage.follower.rest()
    stage.produce()
    stage.low_wait(0, 1)
    assert len(stage.take().rows) == 1
    kit.advance(day(1), ("best", "p"))
    stage.follower.rest()
    assert tasks_of(stage.take()) == [best]


@pytest.mark.parametrize("how", ["paused", "removed", "resting"])
def test_nothing_is_kept_for_what_could_not_start(world: World, how: str) -> None:
    # T21: also where a slot was kept for it until now, and the producer lives on.
    stage = Stage(world)
    stage.produce()
    stage.follower.once()
    assert stage.kept() == [-10]
    match how:
        case "paused":
            operate.pause(stage.important)
        case "removed":
            world.undeclare(stage.important)
            world.sync()
        case _:
            later = sa.text("UPDATE tidemill.reactive_task SET start_after = now() + interval '1 hour', "
                            "generation = generation + 1 WHERE name = :name")  # fmt: skip
            kit.execute(later.bindparams(name=stage.important))
    stage.follower.rest()
    stage.follower.once()
    assert stage.kept() == []
    stage.low_wait(0, 1)
    assert [len(stage.take().rows) for _ in range(2)] == [1, 1]


def test_claims_from_two_connections_obey_together(world: World) -> None:
    # T21: under the lock of the queue, never one more than is left beside what is kept.
    stage = Stage(world)
    stage.produce()
    stage.low_wait(0, 1, 2, 3)
    for _ in range(10):
        start = threading.Barrier(2)

        def take(start: threading.Barrier = start) -> Claim:
            cursor = Cursor(TaskRun, QUEUE)
            start.wait(60)
            return stage.take(cursor)

        with ThreadPoolExecutor(2) as threads:
            found = [each.result() for each in [threads.submit(take) for _ in range(2)]]
        assert sorted(len(each.rows) for each in found) == [0, 1]
        with transaction() as session:
            for each in found:
                for row in each.rows:
                    endings.give_back(session, row.id, each.pass_key, timedelta(0))


def _free() -> dict[str, int]:
    with transaction() as session:
        return {each.queue: each.free for each in dispatch.find_ready(session, Waiting(TaskRun))}


def test_dispatch_does_not_ring_for_what_may_not_start(world: World) -> None:
    # T21
    stage = Stage(world)
    stage.produce()
    stage.low_wait(0, 1)
    assert _free()[QUEUE] == 1
    stage.take()
    assert _free()[QUEUE] == 0


def test_dispatch_rings_for_the_important_one_beside_others_that_may_not(world: World) -> None:
    # T21: one number for the queue, whatever the order in which the ranks are found.
    stage = Stage(world)
    best = world.task("best", Delta("best", "p", "1d"), pool="marts", priority=20)
    stage.follower.rest()
    stage.produce()
    stage.low_wait(0, 1, 2)
    stage.take()
    kit.advance(day(1), ("best", "p"))
    stage.follower.rest()
    assert {_free()[QUEUE] for _ in range(20)} == {1}
    assert tasks_of(stage.take()) == [best]


def test_holds_are_written_only_when_they_change(world: World) -> None:
    stage = Stage(world)
    stage.produce()
    stage.follower.once()

    def versions() -> list[Any]:
        found = sa.text(
            "SELECT xmin::text, name FROM tidemill.queue UNION ALL SELECT xmin::text, task FROM tidemill.reactive_hold"
        )
        return sorted(tuple(row) for row in kit.execute(found))

    before = versions()
    for _ in range(4):
        stage.follower.once()
    assert versions() == before


def test_ageing_goes_on_where_nothing_is_kept(world: World) -> None:
    stage = Stage(world)
    stage.low_wait(0)
    kit.execute(sa.update(RUN).values(created_at=sa.func.now() - timedelta(minutes=15)))
    assert pools.age().raised == 1
    assert stage.rank(stage.low[0]) == -15


def test_ageing_does_not_undo_what_is_kept(world: World) -> None:
    # T20, T21: for as long as it is kept; then what has waited for long is the first.
    stage = Stage(world)
    stage.produce()
    stage.low_wait(0, 1)
    assert len(stage.take().rows) == 1
    kit.execute(sa.update(RUN).where(RUN.c.queue == QUEUE).values(created_at=sa.func.now() - timedelta(minutes=15)))
    pools.age()
    assert stage.rank(stage.low[1]) == -9
    assert len(stage.take(Cursor(TaskRun, QUEUE)).rows) == 0
    stage.time_is_over()
    assert pools.age().raised
    assert stage.rank(stage.low[1]) == -15
    assert len(stage.take(Cursor(TaskRun, QUEUE)).rows) == 1


def test_what_has_waited_for_longer_than_max_hold_ages_past_what_is_kept(world: World) -> None:
    # T20: also while one run that delivers comes after the other, each held for anew.
    stage = Stage(world)
    stage.produce()
    stage.low_wait(0, 1)
    assert len(stage.take().rows) == 1
    kit.execute(sa.update(RUN).where(RUN.c.queue == QUEUE).values(created_at=sa.func.now() - timedelta(minutes=31)))
    assert pools.age().raised
    assert (stage.rank(stage.low[1]), stage.kept()) == (-31, [-10])
    assert len(stage.take(Cursor(TaskRun, QUEUE)).rows) == 1
