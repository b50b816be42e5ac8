"""What the code declares, brought to the database when a service starts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from app.db import transaction
from app.registry import registry
from tests.kit import reactive as kit
from tests.kit.reactive import ORDERS, World, day
from triggers import All, ChunkDelta, Delta, RefDelay, endings, operate
from triggers.model import TASK, ReactiveLeaf
from triggers.registration import declared
from triggers.sync import Synced, synchronize

DAILY = ChunkDelta(*ORDERS, "day")


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with kit.world() as found:
        yield found


def _leaves(task: str) -> list[tuple[Any, ...]]:
    leaf = ReactiveLeaf
    query = sa.select(leaf.position, leaf.entity, leaf.parameter, leaf.ref_entity, leaf.ref_parameter, leaf.latched)
    rows = kit.execute(query.join(TASK, TASK.c.id == leaf.task_id).where(TASK.c.name == task).order_by(leaf.position))
    return [tuple(each) for each in rows]


def test_a_new_task_is_written_with_its_leaves(world: World) -> None:
    task = world.declare(
        "a",
        All(DAILY, RefDelay("a", "p", "b", "q", "2h")),
        pool="marts",
        priority=7,
        produces=[("mart.orders", "built_to")],
        min_interval="90s",
        on_lapse="run",
        max_failures=3,
        backoff="500ms",
    )
    assert world.sync().new == (task,)
    row = kit.row(task)
    words = (row.module, row.pool, row.priority, row.produces, row.min_interval, row.first_run, row.on_lapse)
    assert words == (
        kit.MODULE,
        "marts",
        7,
        [["mart.orders", "built_to"]],
        timedelta(seconds=90),
        "fire",
        "run",
    )
    assert (row.max_failures, row.backoff) == (3, timedelta(milliseconds=500))
    assert _leaves(task) == [(0, *ORDERS, None, None, True), (1, "a", "p", "b", "q", False)]


def test_what_did_not_change_is_not_written(world: World) -> None:
    for number, span in enumerate(["0.1s", "36500d", "1h"]):
        world.declare(f"t{number}", All(DAILY, Delta(*ORDERS, "36h")), min_interval=span, backoff=span, priority=number)
    first = world.sync()
    before = kit.execute(sa.select(TASK.c.generation, sa.literal_column("xmin::text")).order_by(TASK.c.name))
    second = world.sync()
    assert (len(first.new), second.new, second.changed, second.removed) == (3, (), (), ())
    assert kit.execute(sa.select(TASK.c.generation, sa.literal_column("xmin::text")).order_by(TASK.c.name)) == before


@pytest.mark.parametrize(
    "change",
    [
        {"pool": "marts"},
        {"priority": 5},
        {"produces": [("a", "b")]},
        {"min_interval": "1h"},
        {"on_lapse": "run"},
        {"first_run": "baseline"},
        {"max_failures": 2},
        {"backoff": "1min"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_option_is_seen_when_it_changes(world: World, change: dict[str, Any]) -> None:
    task = world.task("a", DAILY)
    world.declare("a", DAILY, **change)
    assert world.sync().changed == (task,)
    assert kit.row(task).generation == 1
    assert world.sync().changed == ()


def test_a_trigger_that_changes_changes_its_leaves(world: World) -> None:
    # T13
    task = world.task("a", All(DAILY, Delta("b", "q", "1d")))
    world.task("a", Delta("b", "q", "1d"))
    assert _leaves(task) == [(0, "b", "q", None, None, True)]
    kit.advance(day(1), ("b", "q"))
    assert world.step() == 1


def test_a_task_that_is_not_declared_any_more_starts_no_more_and_keeps_what_it_saw(world: World) -> None:
    # T13
    task = world.task("a", DAILY)
    kit.advance(day(1))
    world.step()
    kit.advance(day(2))
    world.poll()
    known = declared[task]
    world.undeclare(task)
    assert world.sync().removed == (task,)
    assert (kit.states(task)[-1], kit.seen(task), world.poll().evaluated) == ("cancelled", {ORDERS: day(1)}, 0)
    assert world.sync().removed == (), "said once"
    declared[task] = known
    assert world.sync().changed == (task,)
    assert world.step() == 1
    assert world.calls.runs[-1].window(*ORDERS) == (day(1), day(2))


def test_a_run_that_works_while_its_task_is_removed_ends_as_usual(world: World) -> None:
    task = world.declare("a", DAILY)

    def body(_: object) -> None:
        world.undeclare(task)
        world.sync()

    world.calls.bodies[task] = body
    world.sync()
    kit.advance(day(1))
    assert world.step() == 1
    assert (kit.states(task), kit.seen(task), kit.violations()) == (["done"], {ORDERS: day(1)}, [])


def test_the_tasks_of_modules_that_are_not_imported_here_belong_to_somebody_else(world: World) -> None:
    with kit.module("of_theirs"):
        theirs = world.task("t", DAILY, module="of_theirs")
        world.undeclare(theirs)
    assert world.task("a", DAILY)
    assert world.sync().removed == ()
    assert kit.row(theirs).removed_at is None
    with kit.module("of_theirs"):
        assert world.sync().removed == (theirs,)


def test_a_module_that_lost_its_last_task_is_still_ours(world: World) -> None:
    with kit.module("of_ours"):
        ours = world.task("t", DAILY, module="of_ours")
        world.undeclare(ours)
        assert world.sync().removed == (ours,)


def test_services_that_start_at_once_write_the_same(world: World) -> None:
    for number in range(20):
        world.declare(f"t{number}", DAILY, pool=f"p{number % 3}")
    begin = threading.Barrier(4)

    def start(_: int) -> Synced:
        begin.wait(60)
        return synchronize()

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(start, range(4)))
    assert sorted(len(each.new) for each in found) == [0, 0, 0, 20]
    assert [each.changed for each in found] == [()] * 4


def test_what_waits_moves_with_its_task(world: World) -> None:
    task = world.task("a", DAILY)
    kit.advance(day(1))
    world.poll()
    world.task("a", DAILY, pool="marts", priority=9)
    (run,) = kit.runs(task)
    assert (run.queue, run.priority, run.rank) == ("reactive.marts", 9, -9)
    assert world.serve("marts") == 1


def test_a_service_says_what_is_about_to_happen(world: World) -> None:
    kit.advance(day(1))
    world.declare("a", DAILY)
    world.declare("b", ChunkDelta("nobody", "writes", "day"))
    world.declare("c", DAILY, first_run="baseline")
    told = world.sync().told()
    assert told[0] == "reactive tasks: 3, of these 3 new, 0 changed, 0 removed"
    assert told[1].startswith("  1 will start at once: tests.kit.reactive.a;")
    assert world.sync().told() == ["reactive tasks: 3, of these 0 new, 0 changed, 0 removed"]
    assert Synced().told() == []


def test_a_task_of_a_newer_release_does_not_stop_a_service(world: World) -> None:
    task = world.task("a", DAILY)
    kit.set_task(task, trigger={"format": 99})
    world.undeclare(task)
    with kit.module("of_theirs"):
        kit.set_task(task, module="never_imported")
    world.declare("b", DAILY)
    told = world.sync().told()
    assert any("not checked: the trigger is of format 99" in line for line in told)


def test_a_registered_task_is_a_function_of_the_application(world: World) -> None:
    task = world.declare("a", DAILY, pool="marts", time_limit="5min")
    found = registry.functions[task]
    assert (found.queue, found.time_limit) == ("reactive.marts", 300)
    assert registry.server_of("reactive.marts") == "reactive"


def test_a_task_that_somebody_changes_is_waited_for(world: World) -> None:
    task = world.task("a", DAILY)
    world.declare("a", DAILY, priority=3)
    with ThreadPoolExecutor(1) as threads:
        with transaction() as session:
            endings.lock_task(session, task)
            session.execute(sa.update(TASK).where(TASK.c.name == task).values(paused=True))
            synced = threads.submit(world.sync)
        assert synced.result(60).changed == (task,)
    row = kit.row(task)
    assert (row.paused, row.priority) == (True, 3), "what an operator said lasts over a release"
    operate.resume(task)
