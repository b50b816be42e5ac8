"""The time line of a task: a lane for each parameter of its trigger, its runs as bars, when its trigger held, what was
missed. And the same as lines of a table, for those who do not see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.console.drawing import lane
from app.console.drawing.axis import Axis, exact
from app.console.drawing.lane import Lane, Mark
from app.words import first_line, span
from triggers.leaves import CtlTrigger
from triggers.listing import PastRun
from triggers.looking.history import History

WIDTH, LEFT, RIGHT, TOP = 1000.0, 92.0, 984.0, 24.0
RUNS_HEIGHT, FOOT = 40.0, 26.0
TICKS_MOST, LINES_MOST = 10, 80


@dataclass(frozen=True)
class Bar:
    """A run: thin while it waited, full while it worked; thin again where it waits to be tried again."""

    x: float
    start: float
    end: float
    again: float
    begun: bool
    tone: str
    says: str

    @property
    def waited(self) -> float:
        return round(max(0.0, self.start - self.x), 1)

    @property
    def waits(self) -> float:
        return round(max(0.0, self.again - self.end), 1)

    @property
    def width(self) -> float:
        return round(max(3.0, self.end - self.start), 1)


@dataclass(frozen=True)
class Band:
    x: float
    width: float
    missed: bool
    says: str


@dataclass(frozen=True)
class Tick:
    x: float
    word: str


@dataclass(frozen=True)
class Line:
    """Of the table."""

    at: datetime
    what: str
    says: str


@dataclass(frozen=True)
class Picture:
    height: float
    lanes: tuple[Lane, ...]
    bars: tuple[Bar, ...]
    bands: tuple[Band, ...]
    ticks: tuple[Tick, ...]
    runs_top: float
    #: The moment that is looked at, if it is one of the past.
    chosen: float | None
    lines: tuple[Line, ...]
    title: str
    desc: str
    with_runs: bool
    width: float = WIDTH
    left: float = LEFT
    right: float = RIGHT

    @property
    def floor(self) -> float:
        return self.height - FOOT


def draw(name: str, history: History, leaves: Sequence[CtlTrigger] = (), at: datetime | None = None) -> Picture:
    along = Axis(history.begin, history.end, LEFT, RIGHT)
    lanes, top = [], TOP
    for number, track in enumerate(history.tracks):
        others = [*history.tracks[:number], *history.tracks[number + 1 :]]
        lanes.append(lane.draw(track, others, leaves, history.runs, along, top))
        top += lane.HEIGHT + lane.GAP
    with_runs = bool(leaves)
    height = top + (RUNS_HEIGHT if with_runs else -lane.GAP / 2) + FOOT
    lines = sorted(_lines(history), key=lambda line: line.at, reverse=True)[:LINES_MOST]
    return Picture(
        height,
        tuple(lanes),
        tuple(_bar(run, along) for run in history.runs),
        tuple(_bands(history, along)),
        tuple(Tick(along.place(each), along.word(each)) for each in along.ticks(TICKS_MOST)),
        top,
        along.place(at) if at is not None and along.holds(at) else None,
        tuple(lines),
        f"Time line of {name}",
        _desc(history),
        with_runs,
    )


def _desc(history: History) -> str:
    words = [f"From {exact(history.begin)} until now."]
    for track in history.tracks:
        where = f"is at {exact(track.current)}" if track.current else "has no value"
        words.append(f"{'.'.join(track.name)} {where} after {len(track.steps)} changes.")
    if history.runs:
        failed = sum(run.state == "failed" for run in history.runs)
        words.append(f"{len(history.runs)} runs, {failed} of them failed.")
    if history.missed:
        words.append(f"{len(history.missed)} windows were missed.")
    return " ".join(words)


def _bar(run: PastRun, along: Axis) -> Bar:
    last = along.place(run.ended_at or along.end)
    start = along.place(run.started_at) if run.started_at else last
    backs_off = run.state == "waiting" and run.started_at is not None
    end, tone = (start, "failed") if backs_off else (last, run.state)
    return Bar(along.place(run.created_at), start, end, last, run.started_at is not None, tone, told(run))


def told(run: PastRun) -> str:
    kind = "" if run.kind == "regular" else f" by hand of {run.requested_by or 'somebody'}"
    words = [f"run {run.id}{kind}: {run.state}"]
    if run.started_at and run.ended_at:
        words.append(f"took {span(run.ended_at - run.started_at)}")
    if run.attempts > 1:
        words.append(f"{run.attempts} tries")
    if run.error:
        words.append(first_line(run.error) or "")
    return ", ".join(words)


def _bands(history: History, along: Axis) -> Iterator[Band]:
    """When the trigger held, as far as evaluations were stored; and windows that nobody used."""
    known, since = list(history.evaluations), None
    for number, each in enumerate(known):
        last = number + 1 == len(known)
        since = (since or each.at) if each.fired else since
        if since is not None and (last or not known[number + 1].fired):
            end = history.end if last else known[number + 1].at
            if end >= history.begin:
                yield _band(since, end, along, missed=False, says=f"its trigger held from {exact(since)}")
            since = None
    for window in history.missed:
        says = f"missed: open from {exact(window.opened_at)} to {exact(window.closed_at)}, {window.reason}"
        yield _band(window.opened_at, window.closed_at, along, missed=True, says=says)


def _band(begin: datetime, end: datetime, along: Axis, *, missed: bool, says: str) -> Band:
    left, right = along.place(begin), along.place(end)
    return Band(left, max(2.0, round(right - left, 1)), missed, says)


def _lines(history: History) -> Iterator[Line]:
    for track in history.tracks:
        for step in track.steps:
            what = "restated" if step.restated else "moved"
            yield Line(step.at, what, f"{'.'.join(track.name)} to {exact(step.value)}")
    for run in history.runs:
        yield Line(run.started_at or run.created_at, "run", told(run))
    for window in history.missed:
        yield Line(window.closed_at, "missed", f"open from {exact(window.opened_at)}, {window.reason}")


__all__ = ["Mark", "Picture", "draw", "told"]
