"""Pools: how many run at once, how often one starts, and that none starves (T20)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Row

from app.errors import BadRequest
from app.limits import Queue
from tests.kit import reactive as kit
from tests.kit.reactive import ORDERS, World, day
from tests.kit.waiting import pause
from triggers import ChunkDelta, Run, pool, pools
from triggers.model import RUN, ReactivePool

DAILY = ChunkDelta(*ORDERS, "day")


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with kit.world() as found:
        yield found


def _limits(name: str = "marts") -> Row[object]:
    (found,) = kit.execute(sa.select(Queue.max_parallel, Queue.rate).where(Queue.name == f"reactive.{name}"))
    return found


def test_never_more_run_at_once_than_the_pool_allows(world: World) -> None:
    # T20: 50 triggers fire in one pass; six workers, three may run
    pool("marts", max_parallel=3)
    running, peak, guard = 0, 0, threading.Lock()

    def body(_: Run) -> None:
        nonlocal running, peak
        with guard:
            running += 1
            peak = max(peak, running)
        pause(0.005)
        with guard:
            running -= 1

    for number in range(50):
        world.declare(f"t{number}", DAILY, body, pool="marts")
    world.sync()
    kit.advance(day(1))
    assert world.poll().started == 50

    def work(number: int) -> int:
        server, done, end = world.server(f"w/{number}"), 0, time.monotonic() + 60
        while len(world.ran) < 50 and time.monotonic() < end:
            done += server.serve("reactive.marts", 1)[0]
        return done

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(work, range(6))) == 50
    assert 2 <= peak <= 3
    assert kit.states() == ["done"] * 50


def test_a_full_pool_starts_nothing_until_a_run_ends(world: World) -> None:
    # T20
    pool("marts", max_parallel=1)
    inner: list[int] = []
    for name in ("a", "b"):
        world.declare(name, DAILY, lambda _: inner.append(world.serve("marts")), pool="marts")
    world.sync()
    kit.advance(day(1))
    world.poll()
    assert world.serve("marts") == 2
    assert inner == [0, 0]


def test_limits_change_at_run_time(world: World) -> None:
    # T20
    inner: list[int] = []
    for name in ("a", "b"):
        world.declare(name, DAILY, lambda _: inner.append(world.serve("marts")), pool="marts")
    world.sync()
    kit.advance(day(1))
    world.poll()
    pools.configure("marts", max_parallel=1)
    world.serve("marts")
    pools.configure("marts", max_parallel=None)
    kit.advance(day(2))
    world.poll()
    world.serve("marts")
    assert inner == [0, 0, 0, 1]


def test_a_rate_limits_starts(world: World) -> None:
    # T20
    pool("marts", rate_limit="1/h")
    for number in range(3):
        world.declare(f"t{number}", DAILY, pool="marts")
    world.sync()
    kit.advance(day(1))
    assert world.step("marts") == 1
    assert sorted(kit.states()) == ["done", "waiting", "waiting"]
    kit.execute(sa.update(Queue).values(refilled_at=sa.func.now() - timedelta(hours=1)))
    assert world.serve("marts") == 1


def test_what_an_operator_sets_lasts_until_the_code_says_something_new(world: World) -> None:
    # T20
    pool("marts", max_parallel=3, rate_limit="10/s")
    world.task("a", DAILY, pool="marts")
    assert tuple(_limits()) == (3, 10.0)
    pools.configure("marts", max_parallel=7)
    world.sync()
    assert tuple(_limits()) == (7, 10.0)
    pool("marts", max_parallel=4, rate_limit="10/s")
    world.sync()
    assert tuple(_limits()) == (4, 10.0)
    del pools.declared["marts"]
    world.sync()
    assert tuple(_limits()) == (4, 10.0), "a service that does not declare it says nothing of it"


def test_a_release_that_changes_one_word_leaves_the_others_as_they_were_set(world: World) -> None:
    # T20
    pool("marts", max_parallel=4)
    world.task("a", DAILY, pool="marts")
    pools.configure("marts", rate_limit="10/s", max_parallel=2)
    kit.execute(sa.update(ReactivePool).values(ageing=timedelta(seconds=5)))
    pool("marts", max_parallel=4, max_hold="20min")
    world.sync()
    assert tuple(_limits()) == (2, 10.0)
    (times,) = kit.execute(sa.select(ReactivePool.ageing, ReactivePool.max_hold))
    assert tuple(times) == (timedelta(seconds=5), timedelta(minutes=20))
    pool("marts", max_parallel=3, max_hold="20min", ageing="2min")
    world.sync()
    assert tuple(_limits()) == (3, 10.0)
    (times,) = kit.execute(sa.select(ReactivePool.ageing, ReactivePool.max_hold))
    assert tuple(times) == (timedelta(minutes=2), timedelta(minutes=20))


def test_what_an_operator_set_of_a_pool_that_was_only_named_lasts_when_the_code_limits_it(world: World) -> None:
    world.task("a", DAILY, pool="marts")
    pools.configure("marts", rate_limit="10/s")
    pool("marts", max_parallel=4)
    world.sync()
    assert tuple(_limits()) == (4, 10.0)


def test_an_operator_may_limit_a_pool_that_the_code_only_names(world: World) -> None:
    world.task("a", DAILY, pool="marts")
    pools.configure("marts", rate_limit="6/min")
    world.sync()
    assert tuple(_limits()) == (None, pytest.approx(0.1))


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_parallel": 0}, "pool marts: max_parallel=0 must be a whole number from 1 to 100000"),
        ({"max_parallel": "3"}, "max_parallel='3' must be a whole number"),
        ({"max_parallel": True}, "max_parallel=True must be a whole number"),
        ({"rate_limit": "often"}, "pool marts: rate_limit: 'often' is not a rate: write a number above 0, a slash"),
        ({"rate_limit": 5}, "rate_limit=5 must be text such as '10/min'"),
    ],
)
def test_limits_that_make_no_sense_are_refused(database_url: str, limits: dict[str, object], said: str) -> None:
    for act in (pool, pools.configure):
        with pytest.raises(BadRequest) as error:
            act("marts", **limits)  # type: ignore[arg-type]
        assert said in str(error.value)
    assert "marts" not in pools.declared


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "a\nb", 5, None])
def test_a_pool_has_a_name(name: object) -> None:
    with pytest.raises(BadRequest, match="must be printable text of 1 to 100 characters"):
        pool(name)  # type: ignore[arg-type]


def _older(task: str, span: timedelta) -> None:
    made = sa.func.now() - span
    kit.execute(sa.update(RUN).where(RUN.c.task == task).values(created_at=made, due_at=made))


def test_priority_goes_first_and_then_who_waits_longest(world: World) -> None:
    # T20
    tasks = {name: world.task(name, DAILY, priority=p) for name, p in {"low": -5, "b": 0, "a": 0, "high": 5}.items()}
    kit.advance(day(1))
    world.poll()
    _older(tasks["a"], timedelta(seconds=30))
    world.serve()
    assert world.ran == [tasks[name] for name in ("high", "a", "b", "low")]


def test_nothing_starves_under_a_stream_of_higher_priority(world: World) -> None:
    # T20: who waits for ageing counts as one priority more
    pool("default", ageing="1min")
    low = world.task("low", DAILY, priority=0)
    kit.advance(day(1))
    world.poll()
    place = None
    for number in range(1, 13):
        _older(low, timedelta(minutes=number))
        world.task(f"t{number}", DAILY, priority=10)
        world.poll()
        pools.age()
        server = world.server()
        server.stopping = _once()
        server.serve("reactive.default", 1)
        if world.ran[-1] == low:
            place = number
            break
    assert place == 10


def _once() -> Callable[[], bool]:
    said = iter([False])
    return lambda: next(said, True)


def test_ageing_raises_by_what_its_pool_says_and_only_once(world: World) -> None:
    pool("slow", ageing="1h")
    for name in ("default", "slow"):
        world.declare(name, DAILY, pool=name, priority=3)
    world.sync()
    kit.advance(day(1))
    world.poll()
    kit.execute(sa.update(RUN).values(created_at=sa.func.now() - timedelta(minutes=150, seconds=5)))
    assert [pools.age().raised, pools.age().raised] == [2, 0]
    assert {row.queue: row.rank for row in kit.runs()} == {"reactive.default": -153, "reactive.slow": -5}
    kit.execute(sa.update(RUN).values(created_at=sa.func.now() - timedelta(days=36_500)))
    pools.age()
    assert min(row.rank for row in kit.runs()) == pools.BEST_RANK


def test_a_pool_that_is_only_named_has_what_is_usual(world: World) -> None:
    world.task("a", DAILY, pool="marts")
    (found,) = kit.execute(sa.select(ReactivePool.ageing, ReactivePool.max_hold, ReactivePool.declared))
    assert tuple(found) == (pools.AGEING, pools.MAX_HOLD, None)
