"""How long work waited and took, added up in memory by whoever does it, and handed on in few pieces.

- A measurement is some additions to a list: no statement, no lock, nothing that could fail.
- A worker child hands on what it has at the end of each ticket, through a pipe to its worker's main process, which adds
  it to the table `timing` with its heartbeat. Where the pipe is full it keeps what it has until the next ticket.
- A child that is killed takes along what it measured in its last ticket. These are figures, not the record of work:
  the log and the runs are.
"""

from __future__ import annotations

import json
import math
import os
import select
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

#: Upper ends of the buckets, in seconds; all that takes longer lies in one of its own.
BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
ENDS = (*BOUNDS, math.inf)
WAIT, WORK = "wait", "work"
#: Whoever can write to the broker can invent names; more than these are not told apart.
SERIES_MOST = 1000
NAME_LIMIT = 300
OTHER = "(other)"
_READ = 65536


class Series(NamedTuple):
    """`measure`: `WAIT` of a queue, from when work was due until it was claimed; `WORK` of a task. `kind`: what waits
    or runs, in one word."""

    measure: str
    kind: str
    name: str
    #: Of work; empty of waiting.
    outcome: str = ""


class Piece(NamedTuple):
    """What was added to one bucket of a series."""

    series: Series
    le: float
    times: int
    seconds: float


class Stopwatch:
    def __init__(self) -> None:
        self._series: dict[Series, tuple[list[int], list[float]]] = {}
        self._pipe: tuple[int, int] | None = None
        self._rest = b""

    def worked(self, kind: str, task: str, outcome: str, seconds: float, times: int = 1) -> None:
        """`times`: what was done together, each for its share of the time."""
        counts, sums = self._of(Series(WORK, kind, task, outcome))
        at = bisect_left(BOUNDS, seconds)
        counts[at] += times
        sums[at] += seconds * times

    def worked_each(self, kind: str, task: str, outcome: str, seconds: Iterable[float]) -> None:
        """The same for many of them."""
        self._add(Series(WORK, kind, task, outcome), seconds)

    def waited(self, kind: str, queue: str, seconds: Iterable[float]) -> None:
        self._add(Series(WAIT, kind, queue), seconds)

    def _add(self, series: Series, seconds: Iterable[float]) -> None:
        counts, sums = self._of(series)
        for each in seconds:
            # The clock of the database may have been set back meanwhile.
            each = max(0.0, each)
            at = bisect_left(BOUNDS, each)
            counts[at] += 1
            sums[at] += each

    def _of(self, series: Series) -> tuple[list[int], list[float]]:
        found = self._series.get(series)
        if found is None:
            if len(self._series) >= SERIES_MOST or len(series.name) > NAME_LIMIT:
                series = series._replace(name=OTHER)
            found = self._series.setdefault(series, ([0] * len(ENDS), [0.0] * len(ENDS)))
        return found

    def take(self) -> list[Piece]:
        """What was measured since the last time."""
        series, self._series = self._series, {}
        return [
            Piece(each, ENDS[at], count, sums[at])
            for each, (counts, sums) in series.items()
            for at, count in enumerate(counts)
            if count
        ]

    def put_back(self, pieces: Iterable[Piece]) -> None:
        for each in pieces:
            counts, sums = self._of(each.series)
            at = bisect_left(BOUNDS, each.le)
            counts[at] += each.times
            sums[at] += each.seconds

    # From a worker's children to its main process

    def open(self) -> None:
        """Before the children are forked."""
        if self._pipe is None:
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)

    def hand_on(self) -> None:
        """Only where there is a pipe; elsewhere it stays until somebody takes it."""
        if self._pipe is None or not self._series:
            return
        pieces = self.take()
        for at, each in enumerate(pieces):
            try:
                # Less than the kernel writes in one piece: what several children write is not mixed up.
                os.write(self._pipe[1], _line(each))
            except OSError:
                self.put_back(pieces[at:])
                return

    def collect(self) -> None:
        """What the children have handed on."""
        if self._pipe is None:
            return
        with suppress(BlockingIOError):
            while found := os.read(self._pipe[0], _READ):
                *lines, self._rest = (self._rest + found).split(b"\n")
                self.put_back(_piece(line) for line in lines)

    def forked(self) -> None:
        """What its parent has measured is not the child's to tell."""
        self._series, self._rest = {}, b""


def _line(piece: Piece) -> bytes:
    at = bisect_left(BOUNDS, piece.le)
    text = json.dumps([*piece.series, at, piece.times, piece.seconds]).encode() + b"\n"
    return text if len(text) <= select.PIPE_BUF else _line(piece._replace(series=piece.series._replace(name=OTHER)))


def _piece(line: bytes) -> Piece:
    measure, kind, name, outcome, at, count, seconds = json.loads(line)
    return Piece(Series(measure, kind, name, outcome), ENDS[at], count, seconds)


stopwatch = Stopwatch()
os.register_at_fork(after_in_child=stopwatch.forked)
