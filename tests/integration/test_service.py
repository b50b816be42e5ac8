"""The reactive service pass by pass: what it starts, what it does beside others, and after what went wrong."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.settings import settings
from tests.kit import reactive as kit
from tests.kit import service as services
from tests.kit.faults import Crashed, crash_at
from tests.kit.reactive import ORDERS, World, day
from tests.kit.service import Clock, Follower
from tests.kit.waiting import wait_until
from triggers import ChunkDelta, Delay, Delta, operate, retention
from triggers.instants import HOUR
from triggers.model import TASK, CtlChange, Evaluation, ReactiveCursor
from triggers.service import Service, cursor
from triggers.service import service as module

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


def now() -> datetime:
    return datetime.now(UTC)


def test_a_change_starts_what_it_concerns_and_looks_at_nothing_else(world: World, follower: Follower) -> None:
    # T18
    for number in range(50):
        world.declare(f"t{number}", Delta(f"e{number}", "p", "1d"))
    world.sync()
    follower.rest()
    kit.advance(day(1), ("e7", "p"))
    report = follower.once()
    assert (report.moved, report.decided, report.started) == (1, 1, 1)
    assert [row.task for row in kit.runs()] == [f"{kit.MODULE}.t7"]


def test_what_held_before_the_service_came_is_started(world: World) -> None:
    # T19
    kit.advance(day(1))
    task = world.task("a", DAILY)
    assert Follower().rest() == 1
    assert kit.states(task) == ["waiting"]


def test_what_holds_at_the_start_is_decided_though_nothing_moves_any_more(world: World) -> None:
    # T19: no change and no timer says so.
    kit.advance(day(1))
    world.task("a", DAILY)
    still = Service(lambda: 1000.0)
    assert still.run_once().taken_over
    assert still.run_once().started == 1


def test_the_end_of_a_run_is_an_event(world: World, follower: Follower) -> None:
    # T16
    task = world.task("a", DAILY)
    kit.advance(day(1))
    follower.rest()
    kit.advance(day(2))
    assert follower.rest() == 0, "it has a run"
    world.serve()
    kit.advance(day(3))
    assert follower.rest() == 1
    assert kit.states(task) == ["done", "waiting"]


def test_the_important_ones_start_first(world: World, follower: Follower) -> None:
    # T18: where more fire than one pass takes.
    for number in range(6):
        world.declare(f"t{number}", DAILY, priority=number)
    world.sync()
    follower.rest()
    kit.advance(day(1))
    reports = [follower.once(limit=2) for _ in range(4)]
    assert [(each.decided, each.started, each.more) for each in reports] == [
        (2, 2, True),
        (2, 2, True),
        (2, 2, False),
        (0, 0, False),
    ]
    made = [row.priority for row in kit.runs()]
    assert [set(made[:2]), set(made[2:4]), set(made[4:])] == [{4, 5}, {2, 3}, {0, 1}]


def test_a_task_that_somebody_changes_is_looked_at_again(world: World, follower: Follower, session: Session) -> None:
    task = world.task("a", DAILY)
    follower.rest()
    session.execute(sa.select(TASK.c.name).with_for_update())
    kit.advance(day(1))
    assert [follower.once().started for _ in range(3)] == [0, 0, 0]
    session.rollback()
    assert follower.rest() == 1
    assert kit.states(task) == ["waiting"]


@pytest.mark.parametrize("point", ["service.before_commit", "service.committed", "start.before_commit"])
def test_a_pass_that_dies_is_made_again_by_the_next_service(world: World, follower: Follower, point: str) -> None:
    # T16, T19
    task = world.task("a", DAILY)
    follower.rest()
    kit.advance(day(1))
    with crash_at(point), pytest.raises(Crashed):
        follower.once()
    follower.replace()
    follower.rest()
    assert kit.states(task) == ["waiting"]
    assert world.serve() == 1
    assert follower.rest() == 0
    assert kit.violations() == []


@pytest.mark.parametrize("point", ["service.before_commit", "service.committed", "start.before_commit"])
def test_after_an_error_the_same_service_reads_everything_anew(world: World, follower: Follower, point: str) -> None:
    task = world.task("a", DAILY)
    follower.rest()
    kit.advance(day(1))
    with crash_at(point, error=RuntimeError), pytest.raises(RuntimeError):
        follower.once()
    assert follower.service.memory is None
    follower.rest()
    assert kit.states(task) == ["waiting"]
    assert services.differing(follower.memory) == {}


def test_a_takeover_that_dies_leaves_nothing_behind(world: World) -> None:
    kit.advance(day(1))
    world.task("a", DAILY)
    found = Follower()
    with crash_at("service.before_commit"), pytest.raises(Crashed):
        found.once()
    assert kit.execute(sa.select(ReactiveCursor.term)) == []
    assert found.rest() == 1


@pytest.mark.parametrize("wrong", ["seen", "current", "unknown", "left over"])
def test_a_memory_that_is_wrong_is_told_counted_and_put_right(
    world: World, follower: Follower, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    # T18
    task = world.task("a", DAILY)
    kit.advance(day(1))
    follower.rest()
    world.serve()
    follower.rest()
    match wrong:
        case "seen":
            follower.memory.index.seen(task, {})
        case "current":
            follower.memory.index.set_current(ORDERS, None)
            kit.advance(day(2), ITEMS)
            kit.execute(sa.text("DELETE FROM tidemill.ctl_seen"))
        case "unknown":
            follower.memory._forget(task)
        case _:
            follower.memory.index.put("gone", DAILY, {})
            follower.memory.tasks["gone"] = follower.memory.tasks[task]
    follower.service._compared = float("-inf")
    with caplog.at_level(logging.ERROR):
        assert follower.once().differences == 1
    assert "memory differed from an evaluation of everything" in caplog.text
    (row,) = kit.execute(sa.select(ReactiveCursor.differences, ReactiveCursor.compared_at))
    assert row.differences == 1
    follower.rest()
    assert services.differing(follower.memory) == {}
    follower.service._compared = float("-inf")
    assert follower.once().differences == 0


def test_what_moves_just_before_a_comparison_is_decided(
    world: World, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    # T19: the comparison follows the streams too, and no later change says that it did.
    task = world.task("a", DAILY)
    follower.rest()
    compare = Service._compare

    def moved_before(self: Service, memory: object) -> int:
        kit.advance(day(1))
        return compare(self, memory)  # type: ignore[arg-type]

    monkeypatch.setattr(Service, "_compare", moved_before)
    follower.service._compared = float("-inf")
    assert follower.once().more
    monkeypatch.undo()
    assert follower.once().started == 1
    assert kit.states(task) == ["waiting"]


@pytest.mark.parametrize("trigger", [{"format": 99, "kind": "delta"}, [1, 2], {"format": 1, "kind": "moon_phase"}])
def test_a_task_that_only_a_newer_release_can_read_stops_no_other(
    world: World, follower: Follower, trigger: object
) -> None:
    tasks = [world.task(name, DAILY) for name in ("a", "b", "c")]
    again = sa.update(TASK).where(TASK.c.name == tasks[1])
    kit.execute(again.values(trigger=trigger, shape="{}", generation=TASK.c.generation + 1))
    for found in (follower, Follower()):
        found.rest()
        kit.advance(day(1))
        found.service._compared = float("-inf")
        found.rest()
        assert found.memory.unreadable == {tasks[1]}
    assert {row.task for row in kit.runs()} == {tasks[0], tasks[2]}


def test_a_rest_ends_by_itself(world: World, follower: Follower) -> None:
    task = world.task("a", Delay(*ORDERS, "1d"), min_interval="1h")
    kit.advance(now())
    assert follower.rest() == 1
    world.serve()
    assert follower.rest() == 0, "its min_interval is not over"
    assert follower.memory.next_timer is not None
    kit.set_task(task, start_after=now() + timedelta(milliseconds=300), generation=TASK.c.generation + 1)
    wait_until(lambda: follower.rest() == 1, 60)
    assert kit.states(task) == ["done", "waiting"]


def test_a_rest_that_ends_while_the_pass_begins_is_not_forgotten(world: World, session: Session) -> None:
    # The transaction begins before the rest ends, and reads the clock after that.
    task = world.task("a", Delay(*ORDERS, "1d"), min_interval="1d")
    kit.advance(now())
    kit.set_task(task, start_after=now() + timedelta(milliseconds=400))
    found = Follower()
    found.rest()
    session.execute(sa.select(ReactiveCursor).with_for_update())
    # Now it begins, and waits for the cursor until the rest is over.
    kit.advance(now(), ITEMS)
    thread = threading.Thread(target=found.once)
    thread.start()
    wait_until(lambda: datetime.now(UTC) > kit.row(task).start_after + timedelta(milliseconds=50), 60)
    session.rollback()
    thread.join()
    found.rest()
    assert kit.states(task) == ["waiting"]


def test_quarantine_ends_when_the_input_moves(world: World, follower: Follower) -> None:
    # T22
    task = world.task("a", DAILY, kit.fail, max_failures=1)
    kit.advance(day(1))
    follower.rest()
    world.serve()
    assert follower.rest() == 0
    assert (kit.states(task), follower.memory.tasks[task].free) == (["failed"], False)
    kit.advance(day(1), ITEMS)
    assert follower.rest() == 0
    kit.advance(day(1) + timedelta(minutes=1))
    assert follower.rest() == 1
    assert kit.row(task).quarantined_at is None
    assert follower.memory.tasks[task].free


def test_an_end_of_quarantine_without_a_start_is_known_too(world: World, follower: Follower) -> None:
    # T22: the input moved, and the trigger does not hold any more.
    task = world.task("a", DAILY, kit.fail, max_failures=1)
    kit.advance(day(2))
    follower.rest()
    world.serve()
    follower.rest()
    kit.execute(
        sa.text("INSERT INTO tidemill.ctl_seen VALUES (:t, 'dds.orders', 'loaded_to', :v)").bindparams(t=task, v=day(2))
    )
    kit.restate(day(1))
    assert follower.rest() == 0
    assert kit.row(task).quarantined_at is None
    assert follower.memory.tasks[task].free


def test_pausing_and_resuming_editing_and_removing(world: World, follower: Follower) -> None:
    # T13
    task = world.task("a", DAILY)
    operate.pause(task)
    kit.advance(day(1))
    assert follower.rest() == 0
    operate.resume(task)
    follower.rest()
    assert kit.states(task) == ["waiting"]
    world.serve()
    world.undeclare(task)
    world.task("a", Delta(*ITEMS, "1d"))
    follower.rest()
    kit.advance(day(2))
    assert follower.rest() == 0
    kit.advance(day(1), ITEMS)
    assert follower.rest() == 1
    world.serve()
    world.undeclare(task)
    world.declare("b", DAILY)
    world.sync()
    follower.rest()
    assert set(follower.memory.tasks) == {f"{kit.MODULE}.b"}
    kit.advance(day(3), ITEMS)
    assert follower.once().decided == 0


def test_a_lapse_is_stored(world: World, follower: Follower) -> None:
    # T24
    task = world.task("a", Delta(*ORDERS, "1d"))
    kit.advance(day(1))
    follower.rest()
    world.serve()
    follower.rest()
    rows = kit.execute(
        sa.select(Evaluation.fired, Evaluation.cause).where(Evaluation.task == task).order_by(Evaluation.id)
    )
    assert [tuple(row) for row in rows] == [(True, "service"), (True, "claim"), (False, "end")]
    assert not kit.row(task).fired


def test_a_lapse_while_no_service_ran_is_stored_by_the_next(world: World) -> None:
    task = world.task("a", Delta(*ORDERS, "1d"))
    kit.set_task(task, fired=True)
    Follower().rest()
    assert not kit.row(task).fired


def test_a_service_that_is_gone_does_not_keep_the_streams_for_ever(world: World, follower: Follower) -> None:
    # T19: should it come back, it reads everything anew.
    task = world.task("a", DAILY)
    follower.rest()
    kit.advance(day(1))
    long_ago = sa.func.now() - settings().log_retention * 2
    kit.execute(sa.update(CtlChange).values(changed_at=long_ago))
    assert retention.run_once().changes == 0
    kit.execute(sa.update(ReactiveCursor).values(moved_at=long_ago))
    assert retention.run_once().changes == 1
    assert follower.rest() == 1
    assert any(each.fenced for each in follower.reports)
    assert kit.states(task) == ["waiting"]


def test_run_once_is_that_of_this_process(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "own", Service(Clock()))
    assert module.run_once().taken_over
    assert not module.run_once().taken_over
    module.own.forget()
    assert module.run_once().taken_over


def test_what_is_kept_is_worked_out_later_than_what_memory_says(
    world: World, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    # T19: a window that closes between the pass and the look at the slots is still to be told of by the next pass.
    world.declare("maker", DAILY, produces=[ITEMS])
    name = world.task("fresh", Delay(*ORDERS, "1h"), min_interval="1h")
    kit.advance(now(), ORDERS)
    turn = cursor.turn

    def an_hour_later(session: Session) -> tuple[int, int]:
        term, moment = turn(session)
        return term, moment + 2 * HOUR

    monkeypatch.setattr(cursor, "turn", an_hour_later)
    follower.rest()
    assert follower.memory.index.truth(name)
    assert services.differing(follower.memory) == {}
