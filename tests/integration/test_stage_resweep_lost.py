"""A walk whose workers die, are stopped, or end at the same time; and its pace, which outlives them (S16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
import sqlalchemy as sa

from app.alarm import HandBack
from app.jobs.run import Pace
from stages import resweep, walking
from stages.definition import RESWEEP, queue_of
from stages.model import PART, PartState, ResweepState
from tests.kit.faults import Crashed, crash_at, pause_at
from tests.kit.stages_shop import Item, Shop, declare, execute, names, only, parts, shop, visits

IDS = names(25)
PAGE = 5


@pytest.fixture
def own(database_url: str) -> Iterator[Shop]:
    with shop() as found, patch.object(walking, "PAGE", PAGE):
        found.put(*IDS)
        yield found


def _recover(own: Shop) -> None:
    """The sweep comes by, and the time after the failure is over."""
    own.sweep()
    own.no_pause()


@pytest.mark.parametrize("time", [1, 2, 4])
@pytest.mark.parametrize(
    "point", ["claim.committed", "visits.loaded", "visits.processed", "finish.before_commit", "finish.committed"]
)
def test_a_crash_anywhere_loses_nothing_and_repeats_a_page_at_most(own: Shop, point: str, time: int) -> None:
    # S16
    own.stage()
    resweep.start("item", parts=4)
    with crash_at(point, time), pytest.raises(Crashed):
        own.walk()
    assert [row.state for row in parts()].count(PartState.RUNNING) == (0 if _ended(point) else 1)
    assert own.walk() >= 0
    assert only().state == (ResweepState.DONE if _ended(point) else ResweepState.RUNNING)
    _recover(own)
    own.walk()
    assert only().state == ResweepState.DONE
    assert only().asked == only().wanted == 25
    assert list(visits()) == IDS
    asked = Counter(own.asked_of())
    assert sorted(asked) == IDS
    assert max(asked.values()) <= 2
    assert len(own.asked) - 25 <= PAGE


def _ended(point: str) -> bool:
    """Whether no part is left behind by the crash: the page that it followed was the last one."""
    return point == "finish.committed" and not any(row.state == PartState.RUNNING for row in parts())


def test_a_lost_part_waits_a_while_and_is_walked_one_by_one(own: Shop) -> None:
    own.stage()
    walk = resweep.start("item", parts=1)
    with crash_at("visits.processed", 2), pytest.raises(Crashed):
        own.walk()
    assert own.sweep().lost == 1
    (part,) = parts()
    assert (part.state, part.attempts, part.alone, part.pass_key) == (PartState.WAITING, 1, False, None)
    assert part.not_before > part.due_at
    assert own.walk() == 0
    own.no_pause()
    assert own.page() == 1
    (part,) = parts()
    assert (part.attempts, part.singly) == (0, PAGE - 1)
    own.walk()
    (part,) = parts()
    assert (resweep.progress(walk).state, part.singly) == (ResweepState.DONE, 0)


def test_what_kills_its_worker_goes_to_its_stages_unasked(own: Shop) -> None:
    # S16, S17: one bad entity never stops the walk
    def kills(entity: Any, _: Any) -> bool:
        if entity.id in ("i0002", "i0013", "i0014"):
            raise SystemExit(entity.id)
        return False

    own.stage(wants=kills)
    declare()
    resweep.start("item", parts=2)
    deaths = 0
    while only().state != ResweepState.DONE:
        assert deaths <= 3 * (walking.DEATHS + 1)
        with suppress(SystemExit):
            own.walk()
            continue
        deaths += 1
        _recover(own)
    assert sorted(visits()) == ["i0002", "i0013", "i0014"]
    assert all(row.due_at is None for row in visits().values())
    assert sorted(set(own.asked_of())) == IDS
    assert only().asked == 25
    (counted,) = execute("select ask_failures, ask_failure from tidemill.stage where name = 'price'")
    assert tuple(counted) == (3, "3 workers have died at it")


def test_a_part_lost_while_its_walk_was_paused_stays_paused(own: Shop) -> None:
    own.stage()
    walk = resweep.start("item", parts=1)
    with crash_at("visits.loaded"), pytest.raises(Crashed):
        own.walk()
    resweep.pause(walk)
    _recover(own)
    assert own.walk() == 0
    (part,) = parts()
    assert (part.state, part.due_at) == (PartState.WAITING, None)
    resweep.resume(walk)
    assert own.walk() == 25


def test_a_part_lost_while_its_walk_was_cancelled_ends(own: Shop) -> None:
    own.stage()
    walk = resweep.start("item", parts=1)
    with crash_at("visits.loaded"), pytest.raises(Crashed):
        own.walk()
    resweep.cancel(walk)
    _recover(own)
    assert own.walk() == 0
    assert [row.state for row in parts()] == [PartState.DONE]
    assert visits() == {}


def test_what_comes_late_is_not_saved(own: Shop) -> None:
    own.stage()
    resweep.start("item", parts=1)
    with pause_at("visits.processed") as paused, ThreadPoolExecutor(1) as threads:
        late = threads.submit(own.walk)
        paused.wait()
        own.sweep()
        paused.go_on()
        late.result()
    assert only().asked == 0
    assert visits() == {}
    own.no_pause()
    assert own.walk() == 25


def test_a_stopped_worker_keeps_what_it_has_asked_and_gives_the_part_back(own: Shop) -> None:
    own.stage()
    resweep.start("item", parts=1)
    stopping = own.server(stopping=lambda: len(own.asked) == 3)
    own.walk(server=stopping)
    (part,) = parts()
    assert (part.asked, part.after, part.state, part.attempts) == (3, "i0002", PartState.WAITING, 0)
    own.walk()
    assert own.asked_of() == IDS


def test_a_worker_whose_grace_is_over_does_the_same(own: Shop) -> None:
    def is_slow(entity: Any, _: Any) -> bool:
        if entity.id == "i0003" and len(own.asked) == 4:
            raise HandBack("the worker was stopped")
        return True

    own.stage(wants=is_slow)
    resweep.start("item", parts=1)
    server = own.server(stopping=lambda: len(own.asked) == 4)
    own.walk(server=server)
    (part,) = parts()
    assert (part.asked, part.state, list(visits())) == (3, PartState.WAITING, IDS[:3])
    assert own.walk() == 22


def test_the_last_two_parts_may_end_at_once(own: Shop) -> None:
    own.stage()
    resweep.start("item", parts=2)
    with patch.object(walking, "PAGE", 100):
        own.page()
        own.page()
        assert [row.asked for row in parts()] == [1, 1]
        own.one.paces["item"] = Pace(seconds=1e-6)
        queue = queue_of("item", RESWEEP)
        with pause_at("finish.before_commit") as paused, ThreadPoolExecutor(2) as threads:
            first = threads.submit(own.one.serve, queue, 1)
            paused.wait()
            second = threads.submit(own.one.serve, queue, 1)
            paused.go_on()
            assert first.result()[0] + second.result()[0] == 23
    assert only().state == ResweepState.DONE
    assert [row.state for row in parts()] == [PartState.DONE] * 2


def test_each_part_has_its_turn_at_the_rate(own: Shop) -> None:
    # S16 has a rate, which workers share
    own.stage()
    resweep.start("item", rate="1/h", parts=4)
    assert own.walk() == 1
    assert own.walk() == 0
    assert _turns() == [1, 2, 3, 0]
    own.all_due()
    # Turns that were missed are not made up for.
    assert own.walk() == 4
    assert own.walk() == 0
    assert own.asked_of()[0] == "i0000"
    assert only().asked == 5


def _turns() -> list[int]:
    """The parts in their order; an hour lies between each and the next."""
    rows = execute(sa.select(PART.c.part, PART.c.due_at).where(PART.c.state == "waiting").order_by(PART.c.due_at))
    hours = [(b.due_at - a.due_at) / timedelta(hours=1) for a, b in pairwise(rows)]
    assert hours == pytest.approx([1.0] * len(hours), abs=0.02)
    return [row.part for row in rows]


def test_a_page_is_no_more_than_a_second_of_the_rate(own: Shop) -> None:
    own.stage()
    resweep.start("item", rate="3/s", parts=1)
    own.one.paces["item"] = Pace(seconds=1e-6)
    assert own.one.serve(queue_of("item", RESWEEP), 1)[0] == 3
    assert [resweep.page_of(rate) for rate in (None, 0.01, 1.5, 1e9)] == [resweep.PAGE, 1, 1, resweep.PAGE]


def test_another_rate_holds_at_once(own: Shop) -> None:
    own.stage()
    walk = resweep.start("item", rate="1/d", parts=4)
    assert own.walk() == 1
    resweep.change_rate(walk, "1/h")
    assert own.walk() == 1
    assert _turns() == [1, 2, 3, 0]
    resweep.pause(walk)
    resweep.change_rate(walk, None)
    assert own.walk() == 0
    resweep.resume(walk)
    assert own.walk() == 23
    assert sorted(own.asked_of()) == IDS


def test_progress_says_how_fast_and_how_long_it_takes(own: Shop) -> None:
    own.stage()
    walk = resweep.start(Item, rate="1/h", parts=1)
    first = resweep.progress(walk)
    assert (first.rate_so_far, first.left) == (None, timedelta(hours=25))
    own.walk()
    found = resweep.progress(walk)
    assert found.rate_so_far is not None
    assert found.left == timedelta(seconds=24 / found.rate_so_far)
    assert found.percent == 4.0
    # What was measured at another rate says nothing any more.
    resweep.change_rate(walk, "2/h")
    assert resweep.progress(walk).left == timedelta(hours=12)
    execute("insert into item (id) select 'new' || n from generate_series(1, 5) n")
    resweep.change_rate(walk, None)
    own.walk()
    done = resweep.progress(walk)
    assert (done.asked, done.total, done.percent, done.left) == (30, 25, 100.0, None)
    assert done.ended_at is not None
