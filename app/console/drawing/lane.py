"""A lane of the time line: one parameter's value over time, with what its conditions ask of it.

Along goes the time, upwards the value, which is a moment too: the data is complete up to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from app.console.drawing.axis import Axis, exact
from app.errors import BadRequest
from triggers.chunks import Scale
from triggers.instants import END, FIRST, to_datetime, to_instant
from triggers.leaves import CtlTrigger
from triggers.listing import PastRun
from triggers.looking.history import Track
from triggers.trigger import ChunkDelay, ChunkDelta, ChunkRefDelay
from triggers.values import windows

HEIGHT, GAP = 150.0, 34.0
BORDERS_MOST, LABELS_MOST, MOMENTS_MOST = 40, 5, 400
_LEAST = timedelta(seconds=1)
_FIRST, _LAST = to_datetime(FIRST), to_datetime(END - 1)
_NOTHING = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Mark:
    """Something across the lane: a border of chunks, a label of its values."""

    y: float
    word: str


@dataclass(frozen=True)
class Box:
    """The increment that a run was given: along, when it worked; upwards, from last seen to current."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    says: str


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    restated: bool
    says: str


@dataclass(frozen=True)
class Lane:
    title: str
    entity: str
    now: str
    top: float
    height: float
    value: str
    area: str
    thresholds: tuple[str, ...]
    #: Where the last threshold ends, and which value that is.
    wanted: Mark | None
    seen: str
    borders: tuple[Mark, ...]
    labels: tuple[Mark, ...]
    boxes: tuple[Box, ...]
    dots: tuple[Dot, ...]


@dataclass(frozen=True)
class Told:
    """What was last seen, from a moment on."""

    since: datetime
    seen: datetime | None


def draw(
    track: Track,
    others: Sequence[Track],
    leaves: Sequence[CtlTrigger],
    runs: Sequence[PastRun],
    along: Axis,
    top: float,
) -> Lane:
    own = [leaf for leaf in leaves if (leaf.entity, leaf.parameter) == track.name]
    told = _told(track, runs, along)
    lines = [list(_threshold(leaf, track, others, told, along)) for leaf in own]
    up = _upwards(track, told, lines, top)
    steps = _steps(track, along)
    value = _path([(at, found) for at, found in steps], along, up)
    wanted = next((line[-1] for line in lines if line and line[-1][1] is not None), None)
    return Lane(
        ".".join(track.name),
        track.name[0],
        exact(track.current) if track.current else "it has no value yet",
        top,
        HEIGHT,
        value,
        _area(value, along, top + HEIGHT, steps),
        tuple(path for line in lines if (path := _path(line, along, up))),
        None if wanted is None or wanted[1] is None else Mark(up.place(wanted[1]), exact(wanted[1])),
        _path(_seen(told, along), along, up) if any(leaf.needs_seen for leaf in own) else "",
        tuple(_borders(own, up)),
        tuple(Mark(up.place(each), up.word(each)) for each in up.ticks(LABELS_MOST)),
        tuple(_boxes(track, runs, along, up)),
        tuple(
            Dot(along.place(each.at), up.place(each.value), each.restated, _stepped(each.at, each.value, each.restated))
            for each in track.steps
        ),
    )


def _stepped(at: datetime, value: datetime, restated: bool) -> str:  # noqa: FBT001
    return f"{exact(at)}: {'restated' if restated else 'moved'} to {exact(value)}"


def _told(track: Track, runs: Sequence[PastRun], along: Axis) -> list[Told]:
    """What the task had seen over time, as its runs were told; in the end, as it has."""
    found, since = [], along.begin
    for run in runs:
        if run.state != "done" or not run.record or not run.checked or run.ended_at is None:
            continue
        pair = windows(run.checked).get(track.name)
        if pair is not None:
            found.append(Told(since, pair[0]))
            since = max(since, run.ended_at)
    return [*found, Told(since, track.seen)]


Points = list[tuple[datetime, datetime | None]]


def _seen(told: Sequence[Told], along: Axis) -> Points:
    ends = [*(each.since for each in told[1:]), along.end]
    return [(at, each.seen) for each, end in zip(told, ends, strict=True) for at in (each.since, end)]


def _threshold(
    leaf: CtlTrigger, track: Track, others: Sequence[Track], told: Sequence[Told], along: Axis
) -> Iterator[tuple[datetime, datetime | None]]:
    """What the condition asked for, over time: between two of these moments it changes evenly."""
    reference = next((other for other in (track, *others) if other.name == leaf.ref), None)
    moments = {along.begin, along.end} | {each.since for each in told}
    moments |= {step.at for step in reference.steps} if reference is not None else set()
    moments |= set(_chunks_of_now(leaf, along))
    ordered = sorted(each for each in moments if along.holds(each))[-MOMENTS_MOST:]
    for begin, end in pairwise(ordered):
        seen = next((each.seen for each in reversed(told) if each.since <= begin), None)
        ref = reference.at(begin) if reference is not None else None
        for at in (begin, end - timedelta(microseconds=1)):
            yield at, _asked(leaf, at, ref, seen)


def _asked(leaf: CtlTrigger, at: datetime, ref: datetime | None, seen: datetime | None) -> datetime | None:
    found = leaf.threshold(
        to_instant(at), None if ref is None else to_instant(ref), None if seen is None else to_instant(seen)
    )
    return None if found is None or not FIRST <= found < END else to_datetime(found)


def _chunks_of_now(leaf: CtlTrigger, along: Axis) -> Iterator[datetime]:
    if isinstance(leaf, ChunkDelay):
        yield from _starts(Scale.parse(leaf.scale, leaf.tz), along.begin, along.end)


def _starts(scale: Scale, begin: datetime, end: datetime) -> list[datetime]:
    """The borders between two moments; none where there are too many to be told apart."""
    first, last = scale.number(to_instant(begin)) + 1, scale.number(to_instant(end))
    if last - first >= BORDERS_MOST:
        return []
    starts = (scale.start(number) for number in range(first, last + 1))
    return [to_datetime(each) for each in starts if FIRST <= each < END]


def _upwards(track: Track, told: Sequence[Told], lines: Sequence[Points], top: float) -> Axis:
    """All values; thresholds too, unless they would press the values flat."""
    own = [each.value for each in track.steps] + [each.seen for each in told if each.seen is not None]
    own += [each for each in (track.current, track.before) if each is not None]
    asked = [value for line in lines for _, value in line if value is not None]
    own = own or asked[-1:] or [_NOTHING]
    low, high = min(own), max(own)
    # What is asked for now is to be seen, unless it is so far away that nothing else would be.
    last = [value for points in lines for _, value in points[-1:] if value is not None]
    ahead = max((abs(each - high) for each in last), default=_LEAST)
    reach = ahead if low == high else min(max(ahead, 2 * (high - low)), 5 * (high - low))
    near = [each for each in asked if low - each <= reach and each - high <= reach]
    low, high = min([low, *near]), max([high, *near])
    pad = max((high - low) * 0.08, _LEAST)
    return Axis(low - min(pad, low - _FIRST), high + min(pad, _LAST - high), top + HEIGHT, top)


def _steps(track: Track, along: Axis) -> Points:
    found: Points = []
    value = track.before
    last = along.begin
    for step in track.steps:
        found += [(last, value), (step.at, value)]
        last, value = step.at, step.value
    return [*found, (last, value), (along.end, value)]


def _path(points: Points, along: Axis, up: Axis) -> str:
    """With gaps where there is no value, or none that the lane reaches."""
    words, drawing, last = [], False, ""
    for at, value in points:
        if value is None or not up.holds(value):
            drawing = False
            continue
        here = f"{along.place(at):g} {up.place(value):g}"
        if here != last or not drawing:
            words.append(f"{'L' if drawing else 'M'}{here}")
        drawing, last = True, here
    return "".join(words)


def _area(value: str, along: Axis, floor: float, steps: Points) -> str:
    begin = next((at for at, found in steps if found is not None), None)
    if begin is None or not value:
        return ""
    return f"{value}L{along.place(along.end):g} {floor:g}L{along.place(begin):g} {floor:g}Z"


def _borders(leaves: Sequence[CtlTrigger], up: Axis) -> Iterator[Mark]:
    for leaf in leaves:
        if isinstance(leaf, ChunkDelta | ChunkDelay | ChunkRefDelay):
            try:
                found = _starts(Scale.parse(leaf.scale, leaf.tz), up.begin, up.end)
            except (BadRequest, OverflowError):
                continue
            yield from (Mark(up.place(each), f"{leaf.scale} from {exact(each)}") for each in found)


def _boxes(track: Track, runs: Sequence[PastRun], along: Axis, up: Axis) -> Iterator[Box]:
    for run in runs:
        if run.checked is None or run.started_at is None:
            continue
        seen, current = windows(run.checked).get(track.name, (None, None))
        if run.window_from is not None and run.window_to is not None:
            seen, current = run.window_from, run.window_to
        if current is None:
            continue
        # One that backs off was given it once, and will be given more.
        until = run.started_at if run.state == "waiting" else run.ended_at or along.end
        left, right = along.place(run.started_at), along.place(until)
        high, low = up.place(current), up.place(seen) if seen is not None else up.first
        high, low = min(high, low), max(high, low)
        says = f"run {run.id} ({run.state}) was given {exact(seen)} to {exact(current)}"
        yield Box(left, high, max(3.0, right - left), max(2.0, low - high), run.state, says)
