"""Windows in which a trigger held, and that nobody used (T23): as the service sees them open and close."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import transaction
from app.settings import settings
from tests.kit import reactive as kit
from tests.kit.reactive import ORDERS, World, day
from tests.kit.service import Follower
from tests.kit.waiting import wait_until
from triggers import Delay, RefDelay, missed, operate, retention
from triggers.model import RUN, MissedWindow

ITEMS = ("dds.items", "loaded_to")
#: For so long a window is open. A loaded machine sees it, and uses it, within that time.
OPEN_SECONDS = 6.0


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


def windows(task: str | None = None) -> list[missed.Missed]:
    with transaction() as session:
        return missed.listed(session, task=task)


def _expiring(world: World, seconds: float = OPEN_SECONDS, **more: Any) -> str:
    kit.advance(now() - timedelta(hours=1) + timedelta(seconds=seconds))
    return world.task("a", Delay(*ORDERS, "1h"), **({"min_interval": "0s"} | more))


def _closed(follower: Follower) -> bool:
    follower.rest()
    return not any(follower.memory.index.truth(name) for name in follower.memory.tasks)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("paused", "the task was paused"),
        ("resting", "its min_interval was not over"),
        ("quarantined", "the task was quarantined"),
        ("working", "an earlier run was still at work"),
    ],
)
def test_a_window_that_closes_unused_is_told_with_the_reason(
    world: World, follower: Follower, how: str, reason: str
) -> None:
    # T23
    begun = now()
    task = world.task("a", Delay(*ORDERS, "1h"), min_interval="0s")
    match how:
        case "paused":
            operate.pause(task)
        case "resting":
            kit.set_task(task, start_after=now() + timedelta(hours=1), generation=7)
        case "quarantined":
            values = [[*ORDERS, None, (at := now() - timedelta(hours=1) + timedelta(seconds=OPEN_SECONDS)).isoformat()]]
            kit.set_task(task, quarantined_at=now(), quarantine_values=values, generation=7)
        case _:
            operate.start(task)
            kit.execute(
                sa.update(RUN).values(
                    state="running",
                    pass_key=sa.func.gen_random_uuid(),
                    recovery_time=now() + timedelta(hours=1),
                    started_at=now(),
                )
            )
    if how != "quarantined":
        follower.rest()
        at = now() - timedelta(hours=1) + timedelta(seconds=OPEN_SECONDS)
    kit.advance(at)
    assert follower.rest() == 0
    wait_until(lambda: _closed(follower), 60)
    (found,) = windows(task)
    assert (found.reason, found.run_id) == (reason, None)
    assert begun < found.opened_at < found.closed_at < now()


def test_a_window_that_was_used_is_not_missed(world: World, follower: Follower) -> None:
    # T23
    _expiring(world)
    assert follower.rest() == 1
    wait_until(lambda: _closed(follower), 60)
    assert windows() == []


def test_a_window_that_was_used_before_the_service_came_is_not_missed(world: World) -> None:
    # T23
    task = _expiring(world, min_interval="1h")
    assert world.step() == 1
    assert kit.states(task) == ["done"]
    found = Follower()
    found.rest()
    wait_until(lambda: _closed(found), 60)
    assert windows() == []


def test_a_window_that_the_pass_beside_it_used_is_not_missed(world: World, follower: Follower) -> None:
    # T23
    task = world.task("a", Delay(*ORDERS, "1h"), min_interval="1h")
    follower.rest()
    kit.advance(now() - timedelta(hours=1) + timedelta(seconds=OPEN_SECONDS))
    world.poll()
    follower.rest()
    assert world.serve() == 1
    wait_until(lambda: _closed(follower), 60)
    assert (kit.states(task), windows()) == (["done"], [])


def test_a_run_that_came_too_late_is_a_missed_window(world: World, follower: Follower) -> None:
    # T23
    task = _expiring(world)
    assert follower.rest() == 1
    wait_until(lambda: _closed(follower), 60)
    world.serve()
    (found,) = windows(task)
    assert kit.states(task) == ["lapsed"]
    assert found.run_id == kit.runs(task)[0].id
    assert "did not hold any more" in found.reason


def test_a_reference_closes_a_window_too(world: World, follower: Follower) -> None:
    # T23
    task = world.task("a", RefDelay(*ITEMS, *ORDERS, "1h"), min_interval="0s")
    operate.pause(task)
    kit.advance(day(1), ITEMS)
    kit.advance(day(1))
    follower.rest()
    kit.advance(day(2))
    follower.rest()
    assert [each.reason for each in windows(task)] == ["the task was paused"]


def test_missed_windows_go_by_age(session: Session) -> None:
    old = now() - settings().log_retention * 2
    session.execute(sa.insert(MissedWindow).values(task="a", opened_at=old, closed_at=old, reason="r"))
    session.commit()
    assert retention.run_once().windows == 1
