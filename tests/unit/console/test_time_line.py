"""The time line of a task, from what was read to places on a picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from app.console.drawing import timeline
from app.console.drawing.axis import Axis
from app.console.drawing.timeline import Picture
from triggers.ctl import FIRST, LAST, Parameter
from triggers.leaves import CtlTrigger
from triggers.listing import PastRun
from triggers.looking.history import Evaluated, History, Step, Track, fitting, rounded
from triggers.missed import Missed
from triggers.trigger import ChunkDelay, ChunkDelta, Delay, Delta, RefDelay

NOW = datetime(2026, 7, 8, tzinfo=UTC)
BEGIN = NOW - timedelta(days=7)
ORDERS, SOURCE = ("dds.orders", "loaded_to"), ("src.orders", "loaded_to")
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def track(name: Parameter = ORDERS, seen: datetime | None = None, steps: int = 6) -> Track:
    """One day further on every day."""
    moved = tuple(Step(BEGIN + DAY * number, BEGIN + DAY * number, restated=False) for number in range(1, steps + 1))
    return Track(name, moved, BEGIN, moved[-1].value if moved else BEGIN, seen)


def run(number: int, start: datetime, window: tuple[datetime | None, datetime], **more: Any) -> PastRun:
    checked = [[*ORDERS, window[0] and window[0].isoformat(), window[1].isoformat()]]
    words: dict[str, Any] = {
        "id": number,
        "task": "t",
        "state": "done",
        "kind": "regular",
        "created_at": start - HOUR,
        "started_at": start,
        "ended_at": start + HOUR,
        "attempts": 1,
        "checked": checked,
        "outputs": None,
        "error": None,
        "record": True,
        "window_from": None,
        "window_to": None,
        "requested_by": None,
        "claimed_by": "w/1",
    }
    return PastRun(**(words | more))


def draw(
    *leaves: CtlTrigger,
    tracks: Sequence[Track] = (),
    runs: Sequence[PastRun] = (),
    evaluations: Sequence[Evaluated] = (),
    missed: Sequence[Missed] = (),
    at: datetime | None = None,
) -> Picture:
    shown = tuple(tracks) or (track(seen=BEGIN),)
    history = History("1w", BEGIN, NOW, shown, tuple(runs), tuple(evaluations), tuple(missed))
    return timeline.draw("shop.mart", history, leaves, at)


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](\S+) ([^ML]+)", path)]


def test_a_value_goes_up_in_steps() -> None:
    (lane,) = draw(Delta(*ORDERS, "1d")).lanes
    found = points(lane.value)
    assert [x for x, _ in found] == sorted(x for x, _ in found)
    assert [y for _, y in found] == sorted((y for _, y in found), reverse=True)
    assert len(lane.dots) == 6
    assert all(one[0] == other[0] or one[1] == other[1] for one, other in pairwise(found))


def test_what_is_asked_for_jumps_when_a_run_has_seen_more() -> None:
    given = (BEGIN, BEGIN + 2 * DAY)
    (lane,) = draw(
        Delta(*ORDERS, "2d"), tracks=[track(seen=given[1])], runs=[run(1, BEGIN + 2 * DAY + HOUR, given)]
    ).lanes
    (path,) = lane.thresholds
    heights = sorted({y for _, y in points(path)}, reverse=True)
    assert len(heights) == 2
    assert lane.wanted is not None
    assert lane.wanted.word == "2026-07-05 00:00:00Z"
    jump = next(x for (x, y) in points(path) if y == heights[1])
    assert jump == pytest.approx(
        Axis(BEGIN, NOW, timeline.LEFT, timeline.RIGHT).place(BEGIN + 2 * DAY + 2 * HOUR), abs=0.2
    )
    (box,) = lane.boxes
    values = points(lane.value)
    assert box.y in {y for _, y in values}
    assert box.y + box.height == pytest.approx(values[0][1], abs=0.2)


def test_what_follows_the_clock_is_a_slope() -> None:
    (lane,) = draw(Delay(*ORDERS, "1d")).lanes
    (path,) = lane.thresholds
    (x, y), (to_x, to_y) = points(path)[0], points(path)[-1]
    assert x < to_x
    assert y > to_y


def test_what_follows_another_parameter_has_its_steps() -> None:
    picture = draw(RefDelay(*ORDERS, *SOURCE, "1d"), tracks=[track(), track(SOURCE, steps=4)])
    orders, source = picture.lanes
    assert len({y for _, y in points(orders.thresholds[0])}) == 5
    assert source.thresholds == ()
    assert orders.top + orders.height < source.top


def test_borders_of_chunks() -> None:
    (lane,) = draw(ChunkDelta(*ORDERS, "day")).lanes
    assert [mark.word for mark in lane.borders][:2] == [
        "day from 2026-07-01 00:00:00Z",
        "day from 2026-07-02 00:00:00Z",
    ]
    # Too many to be told apart.
    assert draw(ChunkDelta(*ORDERS, "min")).lanes[0].borders == ()


def test_bands_show_when_it_held_and_what_was_missed() -> None:
    known = [
        Evaluated(1, BEGIN - DAY, True, "polling", 1),
        Evaluated(2, BEGIN + DAY, False, "end", None),
        Evaluated(3, BEGIN + 3 * DAY, True, "polling", 2),
        Evaluated(4, BEGIN + 3 * DAY + HOUR, True, "claim", 2),
    ]
    window = Missed("t", BEGIN + DAY, BEGIN + 2 * DAY, "the task was paused", None)
    first, second, missed = draw(Delay(*ORDERS, "1d"), evaluations=known, missed=[window]).bands
    assert first.x == timeline.LEFT
    assert second.x + second.width == pytest.approx(timeline.RIGHT)
    assert missed.missed
    assert "the task was paused" in missed.says


def test_a_run_is_thin_while_it_waits() -> None:
    picture = draw(Delta(*ORDERS, "1d"), runs=[run(1, BEGIN + DAY, (None, BEGIN + DAY), error="no disk\nat all")])
    (bar,) = picture.bars
    assert bar.waited > 0
    assert bar.width >= 3
    assert bar.says == "run 1: done, took 1h, no disk"
    assert [line.what for line in picture.lines if line.what == "run"] == ["run"]
    assert picture.desc.count("1 runs, 0 of them failed") == 1


def test_a_run_that_backs_off_waits_again() -> None:
    given = (None, BEGIN + DAY)
    tried = run(1, BEGIN + DAY, given, state="waiting", ended_at=None, error="no disk")
    picture = draw(Delta(*ORDERS, "1d"), runs=[tried])
    (bar,) = picture.bars
    assert bar.tone == "failed"
    assert bar.width == 3
    assert bar.end + bar.waits == pytest.approx(timeline.RIGHT)
    assert picture.lanes[0].boxes[0].width == 3


def test_a_moment_that_is_looked_at() -> None:
    assert draw(Delta(*ORDERS, "1d"), at=BEGIN + DAY).chosen is not None
    assert draw(Delta(*ORDERS, "1d"), at=BEGIN - DAY).chosen is None


@pytest.mark.parametrize(
    "leaf",
    [
        Delta(*ORDERS, "1000000d"),
        Delay(*ORDERS, "3000000d"),
        ChunkDelta(*ORDERS, "year", 9000),
        ChunkDelay(*ORDERS, "month"),
        RefDelay(*ORDERS, *ORDERS, "2000000d"),
    ],
    ids=lambda leaf: leaf.kind,
)
@pytest.mark.parametrize(
    "values", [(), (FIRST,), (LAST,), (FIRST, LAST), (NOW,), (NOW, NOW + timedelta(microseconds=1))], ids=len
)
def test_the_ends_of_time(leaf: CtlTrigger, values: Sequence[datetime]) -> None:
    steps = tuple(Step(BEGIN + DAY, value, restated=False) for value in values)
    last = values[-1] if values else None
    picture = draw(leaf, tracks=[Track(ORDERS, steps, None, last, last)])
    (lane,) = picture.lanes
    for _, y in points(lane.value):
        assert lane.top - 0.1 <= y <= lane.top + lane.height + 0.1
    assert (lane.value == "") == (not values)


def test_how_long_it_goes_back() -> None:
    assert fitting(NOW, None) == "1d"
    assert fitting(NOW, NOW - timedelta(minutes=3)) == "15min"
    assert fitting(NOW, NOW - 2 * DAY) == "1w"
    assert fitting(NOW, NOW - 4000 * DAY) == "1y"


def test_the_end_stands_still_for_a_while() -> None:
    end = rounded(NOW, HOUR)
    assert NOW < end <= NOW + HOUR / 90
    assert rounded(NOW + timedelta(seconds=5), HOUR) == end
