"""How runs end: failures, backoff, quarantine; and a crash at every point of their way."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Row

from app.alarm import HandBack
from app.jobs.endings import Failure
from app.jobs.model import Outcome
from tests.kit import reactive as kit
from tests.kit.faults import crash_at
from tests.kit.reactive import ORDERS, Failed, World, day
from triggers import ChunkDelta, Delay, Run, ctl, endings, operate
from triggers.model import RUN, Evaluation
from triggers.registration import declared

MART = ("mart.orders", "built_to")
DAILY = ChunkDelta(*ORDERS, "day")


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with kit.world() as found:
        yield found


def _fail_until_over(world: World, task: str) -> Row[object]:
    while kit.states(task)[-1] == "waiting":
        assert world.serve() == 1
        world.pass_backoff()
    return kit.row(task)


def test_a_failed_run_leaves_last_seen_and_is_tried_again_as_the_same_run(world: World) -> None:
    # T11, T22
    task = world.task("a", DAILY)
    kit.advance(day(1))
    world.step()
    world.calls.bodies[task] = kit.fail
    kit.advance(day(2))
    assert world.step() == 1
    assert kit.seen(task) == {ORDERS: day(1)}
    (_, run) = kit.runs(task)
    assert (run.state, run.attempts, run.error, run.traceback) == ("waiting", 1, "Failed: on purpose", "the traceback")
    assert world.poll().evaluated == 0
    world.calls.bodies[task] = kit.nothing
    world.pass_backoff()
    assert world.serve() == 1
    assert [each.attempt for each in world.calls.runs] == [1, 1, 2]
    assert (kit.states(task), kit.seen(task), kit.row(task).failures) == (["done", "done"], {ORDERS: day(2)}, 0)


def test_a_failed_run_is_not_tried_again_when_its_trigger_does_not_hold_any_more(world: World) -> None:
    # T22
    task = world.task("a", Delay(*ORDERS, "1h"), kit.fail, min_interval="0s")
    kit.advance(datetime.now(UTC))
    assert world.step() == 1
    kit.restate(day(-10))
    world.pass_backoff()
    assert world.serve() == 1
    assert (kit.states(task), len(world.ran)) == (["lapsed"], 1)


def test_backoff_doubles_and_success_resets_it(world: World) -> None:
    # T22
    task = world.task("a", DAILY, kit.fail, backoff="10s")
    kit.advance(day(1))
    world.poll()
    waits = []
    for _ in range(4):
        world.serve()
        (wait,) = kit.execute(sa.select(RUN.c.not_before - sa.func.now()))
        waits.append(round(wait[0].total_seconds()))
        world.pass_backoff()
    assert waits == [10, 20, 40, 80]
    world.calls.bodies[task] = kit.nothing
    world.serve()
    assert kit.row(task).failures == 0


@pytest.mark.parametrize(
    ("first", "failures", "wait"),
    [("5s", 1, "5s"), ("5s", 3, "20s"), ("5s", 900, "1h"), ("2h", 1, "2h"), ("2h", 9, "2h"), ("0s", 9, "0s")],
)
def test_backoff_ends_at_an_hour_or_at_what_the_task_begins_with(first: str, failures: int, wait: str) -> None:
    spans = {"5s": 5, "20s": 20, "1h": 3600, "2h": 7200, "0s": 0}
    found = endings.backoff(timedelta(seconds=spans[first]), failures)
    assert found == timedelta(seconds=spans[wait])
    assert endings.backoff(timedelta(days=36_500), 1000) == timedelta(days=36_500)


def test_after_max_failures_in_a_row_a_task_is_quarantined(world: World) -> None:
    # T22
    task = world.task("a", DAILY, kit.fail, max_failures=3)
    kit.advance(day(1))
    world.poll()
    row = _fail_until_over(world, task)
    assert (len(world.ran), kit.states(task), kit.seen(task)) == (3, ["failed"], {})
    assert row.quarantine_reason == "failed 3 times in a row: Failed: on purpose"
    assert world.poll().started == 0
    assert kit.violations() == []


def _quarantined(world: World) -> str:
    task = world.task("a", DAILY, kit.fail, max_failures=1)
    kit.advance(day(1))
    assert world.step() == 1
    assert world.step() == 0
    world.calls.bodies[task] = kit.nothing
    return task


def test_a_change_of_its_input_releases_a_task(world: World) -> None:
    # T22
    task = _quarantined(world)
    kit.advance(day(1.1))
    assert world.step() == 1
    assert (kit.states(task), kit.row(task).failures) == (["failed", "done"], 0)


def test_a_change_of_its_code_releases_a_task(world: World) -> None:
    # T22
    task = _quarantined(world)
    world.sync()
    assert world.step() == 0
    world.change_code(task)
    assert world.sync().changed == (task,)
    assert world.step() == 1


def test_an_operator_releases_a_task(world: World) -> None:
    # T22
    task = _quarantined(world)
    assert operate.release(task)
    assert world.serve() == 1
    assert kit.row(task).quarantined_at is None


def test_quarantine_holds_in_whatever_zone_a_session_reads(world: World) -> None:
    task = _quarantined(world)
    values = [[*ORDERS, None, "2026-01-02T03:00:00+03:00"]]
    kit.set_task(task, quarantine_values=values)
    assert world.step() == 0


def test_what_dies_each_time_before_it_is_checked_ends_in_quarantine_for_good(world: World) -> None:
    # T22: the values that hold it are those of then
    task = world.task("a", DAILY, max_failures=2)
    kit.advance(day(1))
    world.poll()
    for _ in range(2):
        with crash_at("claim.committed"):
            world.crash(world.serve)
        world.sweep()
        world.pass_backoff()
    assert kit.states(task) == ["failed"]
    assert world.step() == 0


def test_a_run_by_hand_fails_once(world: World) -> None:
    task = world.task("a", DAILY, kit.fail)
    operate.start(task)
    assert world.serve() == 1
    assert (kit.states(task), kit.row(task).failures, kit.row(task).quarantined_at) == (["failed"], 0, None)


def test_a_run_by_hand_that_ends_well_leaves_the_quarantine_to_the_trigger(world: World) -> None:
    # T22: only regular runs count
    task = _quarantined(world)
    operate.start(task)
    assert world.serve() == 1
    assert (kit.states(task), kit.row(task).failures, world.poll().started) == (["failed", "done"], 1, 0)


def test_what_is_handed_back_is_no_failure(world: World) -> None:
    task = world.task("a", DAILY)
    kit.advance(day(1))
    world.poll()
    stopped = Failure(str(HandBack("stopped")), again=timedelta(0), outcome=Outcome.INTERRUPTED, uncharged=True)
    server = world.server()
    server.calls = type("Stopping", (), {"call_function": lambda *_: stopped})()
    left = iter([False, True])
    server.stopping = lambda: next(left)
    assert server.serve("reactive.default", 1) == (1, False)
    (run,) = kit.runs(task)
    assert (run.state, run.attempts, kit.row(task).failures) == ("waiting", 0, 0)
    assert world.serve() == 1


def test_a_task_says_itself_when_it_is_tried_again(world: World) -> None:
    """As Celery's `self.retry(eta=…)` has it."""
    task = world.task("a", DAILY)
    kit.advance(day(1))
    world.poll()
    moment = datetime.now(UTC) + timedelta(hours=3)
    later = Failure("later", again=timedelta(0), outcome=Outcome.RETRIED, changes={"not_before": moment})
    server = world.server()
    server.calls = type("Later", (), {"call_function": lambda *_: later})()
    server.serve("reactive.default", 1)
    assert abs(kit.runs(task)[0].not_before - moment) < timedelta(minutes=1)


@pytest.mark.parametrize("lost", [False, True])
def test_a_run_of_a_task_that_was_removed_meanwhile_is_not_tried_again(world: World, lost: bool) -> None:  # noqa: FBT001
    """No worker would take it."""
    task = world.declare("a", DAILY)
    known = declared[task]

    def body(_: Run) -> None:
        world.undeclare(task)
        assert world.sync().removed == (task,)
        raise Failed("and it fails")

    world.calls.bodies[task] = body
    world.sync()
    kit.advance(day(1))
    world.poll()
    if lost:
        with crash_at("run.after_body"):
            world.crash(world.serve)
        world.sweep()
    else:
        world.serve()
    assert (kit.states(task), kit.violations()) == (["failed"], [])
    declared[task] = known
    world.sync()
    world.calls.bodies[task] = kit.nothing
    assert world.step() == 1


def test_a_pool_that_changed_while_a_run_worked_is_where_it_waits(world: World) -> None:
    task = world.declare("a", DAILY)

    def body(_: Run) -> None:
        world.task("a", DAILY, kit.nothing, pool="other")
        raise Failed("once")

    world.calls.bodies[task] = body
    world.sync()
    kit.advance(day(1))
    world.step()
    assert (kit.runs(task)[0].queue, kit.violations()) == ("reactive.other", [])
    world.pass_backoff()
    assert world.serve("other") == 1


POINTS = (
    "start.before_commit",
    "start.committed",
    "claim.before_commit",
    "claim.committed",
    "run.checked",
    "run.before_body",
    "run.after_body",
    "finish.before_commit",
    "finish.committed",
)


@pytest.mark.parametrize("point", POINTS)
def test_after_a_crash_at_any_point_nothing_is_lost(world: World, point: str) -> None:
    # T11, T16, T17
    def body(run: Run) -> None:
        run.advance(MART[0], built_to=run.window(*ORDERS)[1])

    task = world.task("a", DAILY, body, produces=[MART])
    kit.execute(sa.text("INSERT INTO tidemill.queue (name, max_parallel) VALUES ('reactive.default', 1)"))
    kit.advance(day(1))
    world.step()
    kit.advance(day(2))
    with crash_at(point):
        world.crash(world.step)
    assert kit.violations() == []
    if point != "finish.committed":
        assert (kit.seen(task), ctl.get(*MART)) == ({ORDERS: day(1)}, day(1))
    kit.advance(day(3))
    world.sweep()
    world.pass_backoff()
    world.step()
    assert (kit.seen(task), ctl.get(*MART)) == ({ORDERS: day(3)}, day(3))
    assert world.step() == 0
    assert set(kit.states(task)) == {"done"}
    assert world.calls.runs[-1].window(*ORDERS)[1] == day(3)
    assert kit.violations() == []


def test_a_late_worker_saves_nothing(world: World) -> None:
    """Its lease was over, and another has run the task since."""

    def body(run: Run) -> None:
        if len(world.ran) == 1:
            world.sweep()
            world.pass_backoff()
            with ThreadPoolExecutor(1) as threads:
                assert threads.submit(world.serve).result(60) == 1
            run.advance(MART[0], built_to=day(7))

    task = world.task("a", DAILY, body)
    kit.advance(day(1))
    world.step()
    assert (kit.states(task), ctl.get(*MART), len(world.ran)) == (["done"], None, 2)


def test_every_check_that_counts_is_kept(world: World) -> None:
    task = world.task("a", DAILY)
    kit.advance(day(1))
    world.step()
    causes = kit.execute(sa.select(Evaluation.cause, Evaluation.run_id).order_by(Evaluation.id))
    run_id = kit.runs(task)[0].id
    assert [tuple(each) for each in causes] == [("polling", run_id), ("claim", run_id), ("end", None)]
