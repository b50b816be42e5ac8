"""Which tasks start: the one place that makes regular runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from app.db import transaction
from app.errors import BadRequest
from tests.kit import reactive as kit
from tests.kit.faults import pause_at
from tests.kit.reactive import ORDERS, World, day
from triggers import All, Any, ChunkDelta, Delay, Delta, RefDelay, operate
from triggers.model import RUN, Ctl, Evaluation
from triggers.starting import Started, start_ready

ITEMS = ("dds.items", "loaded_to")


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with kit.world() as found:
        yield found


def _start(*tasks: str) -> Started:
    with transaction() as session:
        return start_ready(session, tasks)


def test_a_first_run_fires_at_once_if_there_is_a_value(world: World) -> None:
    # T12, T14
    task = world.task("a", ChunkDelta(*ORDERS, "day"))
    assert world.step() == 0
    kit.advance(day(1))
    assert world.step() == 1
    assert world.calls.runs[0].window(*ORDERS) == (None, day(1))
    assert kit.seen(task) == {ORDERS: day(1)}


def test_a_trigger_of_current_values_only_is_computed_as_usual_at_first(world: World) -> None:
    # T12
    world.task("late", RefDelay(*ORDERS, *ITEMS, "1h"), min_interval="1h")
    kit.advance(day(1))
    kit.advance(day(2), ITEMS)
    assert world.step() == 0
    kit.advance(day(2))
    assert world.step() == 1


@pytest.mark.parametrize(("first_run", "starts"), [("fire", 1), ("baseline", 0)])
def test_a_parameter_that_is_new_to_a_task_is_as_at_its_first_run(world: World, first_run: str, starts: int) -> None:
    # T13
    kit.advance(day(1))
    kit.advance(day(5), ITEMS)
    orders, items = ChunkDelta(*ORDERS, "day"), ChunkDelta(*ITEMS, "day")
    task = world.task("a", orders)
    assert world.step() == 1
    world.task("a", Any(items, orders), first_run=first_run)
    assert world.step() == starts
    assert kit.seen(task) == {ORDERS: day(1), ITEMS: day(5)}
    kit.advance(day(2))
    assert world.step() == 1
    assert world.calls.runs[-1].window(*ORDERS) == (day(1), day(2))


def test_what_was_seen_is_kept_over_another_trigger_and_back(world: World) -> None:
    # T13: by name, never by place; also of a parameter that was removed
    kit.advance(day(1))
    kit.advance(day(5), ITEMS)
    orders, items = ChunkDelta(*ORDERS, "day"), ChunkDelta(*ITEMS, "day")
    task = world.task("a", All(orders, items))
    assert world.step() == 1
    world.task("a", items)
    assert world.step() == 0
    world.task("a", Any(items, orders))
    assert world.step() == 0
    assert kit.seen(task) == {ORDERS: day(1), ITEMS: day(5)}


def test_all_leaves_and_references_are_seen_also_where_one_decided(world: World) -> None:
    # T11: no short circuit
    other, ref = ("c", "p"), ("d", "q")
    trigger = Any(Delta(*ORDERS, "1d"), Delta(*ITEMS, "1d"), RefDelay(*other, *ref, "1h"))
    task = world.task("a", trigger, min_interval="0s")
    for number, parameter in enumerate((ORDERS, ITEMS, ref)):
        kit.advance(day(number), parameter)
    assert world.step() == 1
    assert kit.seen(task) == {ORDERS: day(0), ITEMS: day(1), ref: day(2)}


def test_no_second_run_of_a_task_that_has_one(world: World) -> None:
    # T16: a constraint, not a lock
    task = world.task("a", Delta(*ORDERS, "1d"))
    kit.advance(day(1))
    assert len(_start(task).runs) == 1
    kit.advance(day(9))
    assert _start(task) == Started({})
    assert world.poll().evaluated == 0
    with pytest.raises(sa.exc.IntegrityError, match="run_one_live"):
        kit.execute(sa.insert(RUN).values(task=task, queue="q", priority=0, generation=0))


@pytest.mark.parametrize("by_hand_first", [False, True])
def test_two_passes_and_a_run_by_hand_at_once_make_one_run(world: World, by_hand_first: bool) -> None:  # noqa: FBT001
    # T16, on three connections
    task = world.task("a", Delta(*ORDERS, "1d"))
    kit.advance(day(1))
    start = threading.Barrier(3)

    def by_hand(_: int) -> None:
        start.wait(60)
        with suppress(BadRequest):
            operate.start(task)

    def poll(_: int) -> None:
        start.wait(60)
        world.poll()

    for number in range(8):
        jobs = [by_hand, poll, poll] if by_hand_first else [poll, poll, by_hand]
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(lambda job: job(0), jobs))
        assert kit.states(task).count("waiting") == 1
        assert world.serve() >= 1
        kit.advance(day(number + 2))
    assert kit.violations() == []


def test_a_pass_that_waits_for_nobody(world: World) -> None:
    """A pass that holds the task's row makes another one leave it alone, and a run by hand comes after it."""
    task = world.task("a", Delta(*ORDERS, "1d"))
    kit.advance(day(1))
    with pause_at("start.before_commit") as paused, ThreadPoolExecutor(2) as threads:
        first = threads.submit(world.poll)
        paused.wait()
        assert world.poll().started == 0
        by_hand = threads.submit(operate.start, task)
        paused.go_on()
        assert first.result(60).started == 1
        with pytest.raises(BadRequest, match="wait for its end, or cancel it first"):
            by_hand.result(60)
    assert kit.states(task) == ["waiting"]


def test_an_evaluation_that_began_before_the_end_of_a_run_starts_nothing(world: World) -> None:
    # T16: while the end is being written, the task is left alone; after it, its values are those of after the end
    task = world.task("a", Delta(*ORDERS, "1d"))
    kit.advance(day(1))
    world.poll()
    with pause_at("finish.before_commit") as paused, ThreadPoolExecutor(1) as threads:
        served = threads.submit(world.serve)
        paused.wait()
        assert world.poll().started == 0
        assert _start(task) == Started({})
        paused.go_on()
        assert served.result(60) == 1
    assert world.poll().started == 0
    assert kit.states(task) == ["done"]
    assert kit.row(task).generation > kit.runs(task)[0].generation


def test_a_task_starts_again_only_min_interval_after_its_last_start(world: World) -> None:
    # T10: from start to start
    task = world.task("a", Delay(*ORDERS, "100d"), min_interval="1h")
    kit.advance(datetime.now(UTC))
    assert world.step() == 1
    assert world.step() == 0
    (run,) = kit.runs(task)
    assert kit.row(task).start_after - run.started_at == pytest.approx(timedelta(hours=1), abs=timedelta(seconds=1))
    kit.set_task(task, start_after=sa.func.now())
    assert world.step() == 1


def test_another_min_interval_holds_from_the_last_start_on(world: World) -> None:
    task = world.task("a", Delay(*ORDERS, "100d"), min_interval="30d")
    kit.advance(datetime.now(UTC))
    assert world.step() == 1
    (run,) = kit.runs(task)
    world.task("a", Delay(*ORDERS, "100d"), min_interval="2d")
    assert kit.row(task).start_after == run.started_at + timedelta(days=2)
    world.task("a", Delay(*ORDERS, "100d"), min_interval="0s")
    assert kit.row(task).start_after is None


def test_a_run_that_lapsed_was_no_start(world: World) -> None:
    # T10, T23
    task = world.task("a", Delay(*ORDERS, "1h"), min_interval="1d")
    kit.advance(datetime.now(UTC))
    world.poll()
    kit.restate(day(-100))
    assert world.serve() == 1
    assert (kit.states(task), world.ran) == (["lapsed"], [])
    assert kit.row(task).start_after is None
    kit.advance(datetime.now(UTC))
    assert world.step() == 1
    assert kit.states(task) == ["lapsed", "done"]


def test_a_run_may_be_made_although_its_trigger_has_lapsed(world: World) -> None:
    task = world.task("a", Delay(*ORDERS, "1h"), min_interval="1d", on_lapse="run")
    kit.advance(datetime.now(UTC))
    world.poll()
    kit.restate(day(-100))
    assert world.serve() == 1
    assert kit.states(task) == ["done"]
    assert kit.seen(task) == {ORDERS: day(-100)}, "the check that counts is that of the claim"


def test_an_unlatched_task_without_min_interval_runs_again_at_once(world: World) -> None:
    # T10: "0s" says that it is meant
    runs_left = 3

    def body(_: object) -> None:
        nonlocal runs_left
        runs_left -= 1
        if not runs_left:
            kit.restate(day(-100))

    world.task("a", Delay(*ORDERS, "1h"), body, min_interval="0s")
    kit.advance(datetime.now(UTC))
    assert world.step() == 3


def test_what_is_decided_is_stored_when_it_changes(world: World) -> None:
    task = world.task("a", All(Delta(*ORDERS, "1d"), Delay(*ITEMS, "1h")))
    kit.advance(day(1))
    kit.advance(datetime.now(UTC), ITEMS)
    world.poll()
    operate.cancel(task)
    operate.release(task)
    operate.cancel(task)
    kit.restate(day(-100), ITEMS)
    for _ in range(3):
        world.poll()
    stored = kit.execute(sa.select(Evaluation.fired, Evaluation.cause).where(Evaluation.task == task))
    assert [tuple(each) for each in stored] == [(True, "polling"), (True, "operator"), (False, "polling")]


def test_values_are_stored_in_utc_whatever_zone_a_session_has(world: World) -> None:
    task = world.task("a", Delta(*ORDERS, "1d"))
    kit.advance(day(1))
    with transaction() as session:
        session.execute(sa.text("SET LOCAL timezone = 'Asia/Kolkata'"))
        assert start_ready(session, [task]).runs
        assert session.execute(sa.select(Ctl.value)).scalar_one().utcoffset() == timedelta(hours=5.5)
    (values,) = kit.execute(sa.select(Evaluation.values))
    assert values[0] == [[*ORDERS, None, day(1).isoformat()]]
