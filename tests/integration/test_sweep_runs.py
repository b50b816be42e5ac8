"""The sweep over lost runs; and that whoever changes a task and its run never waits in a circle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext

from app import db
from app.db import transaction
from app.errors import BadRequest
from recovery import record
from recovery import runs as lost_runs
from tests.conftest import forget_connections
from tests.kit import reactive as kit
from tests.kit.faults import crash_at
from tests.kit.reactive import ORDERS, World, day
from triggers import ChunkDelta, ctl, endings, operate, pools

DAILY = ChunkDelta(*ORDERS, "day")


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with kit.world() as found:
        yield found


def _lose(world: World, *tasks: str) -> None:
    """Claimed by a worker that dies then."""
    world.poll()
    for _ in tasks:
        with crash_at("run.before_body"):
            world.crash(world.serve)


def test_a_lost_run_counts_as_a_failure_and_waits(world: World) -> None:
    # T22, R7
    task = world.task("a", DAILY)
    kit.advance(day(1))
    _lose(world, task)
    assert world.sweep() == lost_runs.Report(lost=1)
    (run,) = kit.runs(task)
    assert (run.state, kit.row(task).failures) == ("waiting", 1)
    assert run.error == "worker w/1 gave no sign of life in time"
    assert world.sweep() == lost_runs.Report()
    with transaction() as session:
        (repair,) = record.listed(session)
    assert (repair.domain, repair.subject, repair.finding, repair.action) == (
        "run",
        str(run.id),
        "lost_claim",
        "queued",
    )


def test_a_live_claim_is_left_alone(world: World) -> None:
    task = world.task("a", DAILY)
    kit.advance(day(1))
    _lose(world, task)
    with kit.up_for_long():
        assert lost_runs.run_once() == lost_runs.Report()
    assert kit.states(task) == ["running"]


def test_what_kills_its_workers_ends_in_quarantine(world: World) -> None:
    # T22
    task = world.task("a", DAILY, max_failures=2)
    kit.advance(day(1))
    for _ in range(2):
        _lose(world, task)
        report = world.sweep()
        world.pass_backoff()
    assert (report.quarantined, kit.states(task)) == (1, ["failed"])
    assert "2 times in a row: worker w/1 gave no sign" in str(kit.row(task).quarantine_reason)


def test_a_lost_run_by_hand_is_made_all_the_same(world: World) -> None:
    task = world.task("a", DAILY)
    operate.start(task)
    _lose(world, task)
    assert world.sweep() == lost_runs.Report(lost=1)
    assert kit.row(task).failures == 0
    world.pass_backoff()
    assert world.serve() == 1
    assert kit.states(task) == ["done"]


def test_the_end_of_a_lost_run_is_an_event_too(world: World) -> None:
    # T16: what moved while it ran starts the next one, with no pass in between
    task = world.task("a", DAILY, max_failures=1)
    kit.advance(day(1))
    _lose(world, task)
    kit.advance(day(2))
    assert world.sweep().quarantined == 1
    assert kit.states(task) == ["failed", "waiting"]


def test_a_sweep_is_bounded_and_says_that_there_is_more(world: World) -> None:
    tasks = [world.task(f"t{number}", DAILY) for number in range(3)]
    kit.advance(day(1))
    _lose(world, *tasks)
    kit.execute(kit.lease_over())
    with kit.up_for_long():
        reports = [lost_runs.run_once(2), lost_runs.run_once(2)]
    assert [(each.lost, each.more) for each in reports] == [(2, True), (1, False)]


def test_a_task_that_somebody_changes_is_left_to_the_next_sweep(world: World) -> None:
    first, second = (world.task(name, DAILY) for name in ("a", "b"))
    kit.advance(day(1))
    _lose(world, first, second)
    with transaction() as session:
        endings.lock_task(session, first)
        with ThreadPoolExecutor(1) as threads:
            report = threads.submit(world.sweep).result(60)
        assert (report.lost, report.busy) == (1, 1)
    assert kit.states() == ["running", "waiting"]
    assert world.sweep().lost == 1


def _cancel(task: str) -> None:
    with suppress(BadRequest):
        operate.cancel(task)


@pytest.mark.parametrize("order", [1, -1])
def test_whoever_changes_the_same_tasks_at_once_never_deadlocks(
    world: World, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starting, working, cancelling, sweeping, registering, ageing: each many times, on connections of their own."""
    # Nobody waits for a connection: on a slow machine that may take too long.
    monkeypatch.setenv("TIDEMILL_POOL_SIZE", "20")
    forget_connections()
    tasks = [world.task(f"t{number}", DAILY, max_failures=100, backoff="0s") for number in range(4)]
    begin = threading.Barrier(6)
    acts: list[Callable[[int], object]] = [
        lambda n: [ctl.advance(ORDERS[0], loaded_to=day(n)), world.poll()],
        lambda _: world.serve(),
        lambda n: _cancel(tasks[n % 4]),
        lambda _: world.sweep(),
        lambda n: world.sync_with_code(tasks[n % 4], str(n)),
        lambda n: [operate.rewind(tasks[n % 4], day(0)), pools.age(), operate.release(tasks[n % 4])],
    ][::order]
    refused: list[str] = []

    def note(context: ExceptionContext) -> None:
        refused.append(str(getattr(context.original_exception, "pgcode", context.original_exception)))

    event.listen(db.engine(), "handle_error", note)

    def many(act: Callable[[int], object]) -> None:
        begin.wait(60)
        for number in range(15):
            act(number)

    with ThreadPoolExecutor(6) as threads:
        for each in [threads.submit(many, act) for act in acts]:
            each.result(300)
    assert refused == []
    assert kit.violations() == []
