"""A run from its claim to its end, and what moves meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa

from app.db import transaction
from app.errors import BadRequest, ClaimLost, MovesBack, TidemillError
from tests.kit import reactive as kit
from tests.kit.faults import pause_at
from tests.kit.reactive import ORDERS, World, day
from triggers import ChunkDelta, Delta, Run, ctl, operate
from triggers.model import RUN
from triggers.registration import declared

MART = ("mart.orders", "built_to")
DAILY = ChunkDelta(*ORDERS, "day")


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with kit.world() as found:
        yield found


def _building(run: Run) -> None:
    run.advance(MART[0], built_to=run.window(*ORDERS)[1])


def test_a_run_receives_exactly_the_increment(world: World) -> None:
    # T25
    world.task("a", DAILY)
    for number in (1, 2, 4):
        kit.advance(day(number))
        assert world.step() == 1
    windows = [run.window(*ORDERS) for run in world.calls.runs]
    assert windows == [(None, day(1)), (day(1), day(2)), (day(2), day(4))]


def test_the_check_that_counts_is_that_of_the_claim(world: World) -> None:
    # T11, T25: what came while the run waited is this run's
    task = world.task("a", DAILY)
    kit.advance(day(1))
    world.poll()
    kit.advance(day(5))
    assert world.serve() == 1
    assert world.calls.runs[0].window(*ORDERS) == (None, day(5))
    assert kit.seen(task) == {ORDERS: day(5)}


def test_what_moves_while_a_task_runs_leads_to_exactly_one_more_run(world: World) -> None:
    # T16
    moves = iter([2, 3])

    def body(_: Run) -> None:
        for number in moves:
            kit.advance(day(number))

    task = world.task("a", DAILY, body)
    kit.advance(day(1))
    assert world.step() == 2
    assert [run.window(*ORDERS) for run in world.calls.runs] == [(None, day(1)), (day(1), day(3))]
    assert world.step() == 0
    assert kit.states(task) == ["done", "done"]


@pytest.mark.parametrize("point", ["run.checked", "run.after_body", "finish.before_commit", "finish.committed"])
@pytest.mark.parametrize("value_first", [True, False])
def test_what_moves_as_a_run_ends_leads_to_exactly_one_more_run(world: World, point: str, value_first: bool) -> None:  # noqa: FBT001
    # T16: on two connections, in both orders of commit
    task = world.task("a", DAILY)
    kit.advance(day(1))
    world.poll()
    with pause_at(point) as paused, ThreadPoolExecutor(1) as threads:
        served = threads.submit(world.serve)
        paused.wait()
        with transaction() as session:
            ctl.advance(ORDERS[0], loaded_to=day(2), session=session)
            if not value_first:
                paused.go_on()
                assert served.result(60) == 1
        paused.go_on()
        served.result(60)
    world.step()
    assert world.step() == 0
    assert kit.states(task) == ["done", "done"]
    assert kit.seen(task) == {ORDERS: day(2)}


def test_outputs_are_written_with_the_end(world: World) -> None:
    task = world.task("a", DAILY, _building, produces=[MART])
    after = world.task("b", ChunkDelta(*MART, "day"))
    kit.advance(day(1))
    assert world.step() == 1
    assert ctl.get(*MART) == day(1)
    assert kit.runs(task)[0].outputs == [[*MART, day(1).isoformat()]]
    assert world.step() == 1
    assert world.ran == [task, after]


@pytest.mark.parametrize(
    ("advance", "said"),
    [
        (lambda run: run.advance("mart.other", built_to=day(1)), "does not say that it produces mart.other.built_to"),
        (lambda run: run.advance(MART[0], built_to=day(1).replace(tzinfo=None)), "has no time zone: write datetime"),
        (
            lambda run: run.advance(MART[0], built_to=day(-5)),
            "cannot be advanced back to",
        ),
        (lambda run: run.advance(MART[0], built_to=day(50_000)), "more than 10 years ahead"),
    ],
    ids=["not produced", "naive", "back", "too far"],
)
def test_what_cannot_be_advanced_fails_the_run_and_says_why(world: World, advance: Any, said: str) -> None:
    kit.advance(day(0), MART)
    task = world.task("a", DAILY, advance, produces=[MART])
    kit.advance(day(1))
    assert world.step() == 1
    (run,) = kit.runs(task)
    assert (run.state, kit.row(task).failures) == ("waiting", 1)
    assert said in run.error
    assert (kit.seen(task), ctl.get(*MART)) == ({}, day(0))
    assert kit.violations() == []


def test_an_output_does_not_move_back_within_a_run() -> None:
    run = Run({}, task="a")
    run.advance(MART[0], built_to=day(2))
    with pytest.raises(MovesBack, match=r"cannot advance it back to 2026-01-02"):
        run.advance(MART[0], built_to=day(1))
    assert run.outputs == {MART: day(2)}


def test_a_transaction_of_the_run_commits_with_its_end(world: World) -> None:
    def body(run: Run) -> None:
        _building(run)
        with run.transaction() as session:
            ctl.advance("by.hand", at=day(7), session=session)
        with pytest.raises(TidemillError, match=r"advance mart\.orders before that"):
            _building(run)
        with pytest.raises(TidemillError, match="or has ended"), run.transaction():
            pass
        raise RuntimeError("too late to matter")

    task = world.task("a", DAILY, body)
    kit.advance(day(1))
    assert world.step() == 1
    assert kit.states(task) == ["done"]
    assert (ctl.get(*MART), ctl.get("by.hand", "at"), kit.seen(task)) == (day(1), day(7), {ORDERS: day(1)})


def test_a_transaction_that_raises_saves_nothing_and_may_be_tried_again(world: World) -> None:
    def body(run: Run) -> None:
        with suppress(ZeroDivisionError), run.transaction() as session:
            ctl.advance("by.hand", at=day(7), session=session)
            raise ZeroDivisionError
        assert ctl.get("by.hand", "at") is None
        with run.transaction() as session:
            ctl.advance("by.hand", at=day(8), session=session)

    task = world.task("a", DAILY, body)
    kit.advance(day(1))
    assert world.step() == 1
    assert (kit.states(task), ctl.get("by.hand", "at")) == (["done"], day(8))


def test_a_transaction_whose_outputs_move_back_saves_nothing_and_fails_the_run(world: World) -> None:
    def body(run: Run) -> None:
        run.advance(MART[0], built_to=day(-5))
        with run.transaction() as session:
            ctl.advance("by.hand", at=day(7), session=session)

    kit.advance(day(0), MART)
    task = world.task("a", DAILY, body)
    kit.advance(day(1))
    assert world.step() == 1
    assert (kit.states(task), kit.row(task).failures, kit.seen(task)) == (["waiting"], 1, {})
    assert ctl.get("by.hand", "at") is None
    assert "MovesBack" in kit.runs(task)[0].error


def test_a_transaction_under_a_lost_claim_saves_nothing(world: World) -> None:
    def body(run: Run) -> None:
        kit.execute(sa.update(RUN).values(pass_key=sa.func.gen_random_uuid()))
        with pytest.raises(ClaimLost):
            run.heartbeat()
        with pytest.raises(ClaimLost), run.transaction() as session:
            ctl.advance("by.hand", at=day(7), session=session)

    task = world.task("a", DAILY, body)
    kit.advance(day(1))
    world.step()
    assert ctl.get("by.hand", "at") is None
    assert (kit.states(task), kit.seen(task)) == (["running"], {})


def test_a_run_may_cancel_itself(world: World) -> None:
    def body(run: Run) -> None:
        run.advance(MART[0], built_to=day(1))
        run.cancel("nothing to do\x00")

    task = world.task("a", DAILY, body)
    kit.advance(day(1))
    assert world.step() == 1
    (run,) = kit.runs(task)
    assert (run.state, run.error, kit.seen(task), ctl.get(*MART)) == ("cancelled", "nothing to do", {}, None)
    assert world.step() == 0, "until its input moves"
    kit.advance(day(2))
    assert world.step() == 1


@pytest.mark.parametrize("record", [False, True])
def test_a_run_by_hand_records_only_when_asked_to(world: World, record: bool) -> None:  # noqa: FBT001
    # T11
    task = world.task("a", DAILY)
    kit.advance(day(1))
    operate.start(task, record=record)
    assert world.poll().evaluated == 0
    assert world.serve() == (1 if record else 2), "its end is an event, and the trigger may hold"
    assert [run.manual for run in world.calls.runs] == [True] + [False] * (not record)
    assert kit.seen(task) == {ORDERS: day(1)}


def test_a_backfill_does_not_move_what_it_produced_back(world: World) -> None:
    task = world.task("a", DAILY, _building, produces=[MART])
    kit.advance(day(9))
    world.step()
    operate.start(task, window=(day(2), day(4)))
    assert world.serve() == 1
    assert world.calls.runs[-1].window(*ORDERS) == (day(2), day(4))
    assert (ctl.get(*MART), kit.seen(task)) == (day(9), {ORDERS: day(9)})
    assert kit.states(task) == ["done", "done"]


def test_who_rewinds_while_a_task_runs_means_what_comes_after(world: World) -> None:
    # T15
    task = world.task("a", DAILY)
    kit.advance(day(5))
    world.step()
    rewound: list[Any] = []

    def body(_: Run) -> None:
        if not rewound:
            rewound.append(operate.rewind(task, day(3)))

    world.calls.bodies[task] = body
    kit.advance(day(6))
    assert world.step() == 2
    assert [run.window(*ORDERS) for run in world.calls.runs[1:]] == [(day(5), day(6)), (day(3), day(6))]
    assert kit.seen(task) == {ORDERS: day(6)}


@pytest.mark.parametrize("end", [kit.nothing, kit.fail, lambda run: run.cancel("no")])
def test_a_run_that_was_cancelled_meanwhile_saves_nothing(world: World, end: Callable[[Run], None]) -> None:
    def body(run: Run) -> None:
        operate.cancel(run.task)
        end(run)

    task = world.task("a", DAILY, body)
    kit.advance(day(1))
    world.step()
    assert (kit.states(task), kit.seen(task), kit.row(task).failures) == (["cancelled"], {}, 0)
    assert world.poll().started == 0


def test_a_value_that_was_missing_has_no_window(world: World) -> None:
    # T14
    with pytest.raises(BadRequest, match="had no value when a was started"):
        Run({ORDERS: (None, None)}, task="a").window(*ORDERS)
    with pytest.raises(BadRequest, match=r"a does not rest on b.c; its trigger names: dds.orders.loaded_to"):
        Run({ORDERS: (None, None)}, task="a").window("b", "c")
    assert Run({ORDERS: (None, None)}).value(*ORDERS) is None
    with pytest.raises(TidemillError, match="made by hand"), Run({}).transaction():
        pass


def test_a_run_waits_for_a_worker_that_knows_its_task(world: World) -> None:
    task = world.task("a", DAILY)
    kit.advance(day(1))
    world.poll()
    known = declared.pop(task)
    assert world.serve() == 1
    (run,) = kit.runs(task)
    assert (run.state, run.attempts, kit.row(task).failures) == ("waiting", 0, 0)
    declared[task] = known
    world.pass_backoff()
    assert world.serve() == 1
    assert kit.states(task) == ["done"]


def test_a_run_of_another_releases_trigger_is_left_to_its_workers(world: World) -> None:
    """Here it would lapse, and there fire again, for as long as both are there."""
    task = world.task("a", Delta(*ORDERS, "1d"))
    kit.advance(day(1))
    world.step()
    old = declared[task]
    world.task("a", Delta(*ORDERS, "1h"))
    declared[task] = old
    kit.advance(day(1.5))
    assert world.step() == 1
    assert kit.states(task) == ["done", "waiting"]
    assert len(world.ran) == 1
