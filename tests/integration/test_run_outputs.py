"""What a run delivers, and what may stand in its way when it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta, timezone

import pytest
import sqlalchemy as sa

from app.claims import saving
from app.db import engine, transaction
from tests.kit import reactive as kit
from tests.kit.reactive import ORDERS, World, day
from tests.kit.waiting import wait_until
from triggers import ChunkDelta, Delta, RefDelay, Run, ctl, missed, operate
from triggers.model import Ctl

MART = ("mart.orders", "built_to")
DAILY = ChunkDelta(*ORDERS, "day")


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with kit.world() as found:
        yield found


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_stranger_that_holds_an_output_only_delays_the_end(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    in_transaction: bool,  # noqa: FBT001
) -> None:
    """T11, T22: a loader that advanced early and goes on for long; the work is not lost, and it is no failure."""
    monkeypatch.setattr(saving, "BLOCKED_SECONDS", 0.2)

    def body(run: Run) -> None:
        run.advance("mart.orders", built_to=day(1))
        if in_transaction:
            with run.transaction():
                pass

    task = world.task("mart", DAILY, body, max_failures=1)
    kit.advance(day(1), ORDERS)
    kit.advance(day(0), MART)
    world.poll()
    with engine().connect() as stranger:
        row = sa.select(Ctl.value).where(Ctl.entity == MART[0]).with_for_update()
        assert stranger.execute(row).scalar_one() == day(0)
        worker = threading.Thread(target=world.serve)
        worker.start()
        wait_until(lambda: world.calls.runs, 60)
        worker.join(1.5)
        assert worker.is_alive(), "it waits for the stranger, for longer than a job would"
        stranger.rollback()
    worker.join(60)
    assert kit.states(task) == ["done"]
    assert ctl.get(*MART) == day(1)


def test_the_window_of_a_run_by_hand_may_be_of_any_zone(world: World) -> None:
    task = world.task("mart", DAILY)
    kit.advance(day(5), ORDERS)
    world.step()
    far_east = timezone(timedelta(hours=20))
    operate.start(task, window=(day(1).astimezone(far_east), day(2).astimezone(far_east)))
    world.serve()
    assert world.calls.runs[-1].window(*ORDERS) == (day(1), day(2))


def test_by_hand_what_was_restated_is_made_anew_and_recorded(world: World) -> None:
    # T15: what the task produces has got further before, and does not go back by that.
    def body(run: Run) -> None:
        run.advance(MART[0], built_to=run.value(*ORDERS) or day(0))

    task = world.task("mart", RefDelay(*ORDERS, "ref", "p", "1h"), body, min_interval="1d", produces=[MART])
    kit.advance(day(5), ("ref", "p"))
    kit.advance(day(5))
    world.step()
    kit.restate(day(3))
    operate.start(task, record=True)
    world.serve()
    assert kit.states(task) == ["done", "done"]
    assert (ctl.get(*MART), kit.seen(task)[ORDERS]) == (day(5), day(3))


def test_a_recorded_window_of_long_ago_takes_nothing_back(world: World) -> None:
    # T15: that is what rewinding is for.
    task = world.task("mart", DAILY)
    kit.advance(day(5), ORDERS)
    world.poll()
    world.serve()
    for until, seen in ((day(2), day(5)), (day(5), day(5))):
        operate.start(task, record=True, window=(day(1), until))
        world.serve()
        assert kit.seen(task) == {ORDERS: seen}


def test_news_alone_misses_no_window(world: World) -> None:
    # T23: what is restated before its run begins is no window that closed by itself.
    task = world.task("mart", Delta(*ORDERS, "1d"))
    kit.advance(day(1), ORDERS)
    world.step()
    kit.advance(day(3), ORDERS)
    world.poll()
    kit.restate(day(1))
    world.serve()
    assert kit.states(task)[-1] == "lapsed"
    with transaction() as session:
        assert missed.listed(session) == []
