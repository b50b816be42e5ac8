"""Injectors for the fault points of `app.faults`: a crash, or a pause until another thread says go on.

In this process: `with crash_at("claim.committed"): …`, `with pause_at("finish.before_commit") as paused: …`.
In a process that a test starts: `env | die_at("claim.committed", marker)`; `tests.kit.tasks` installs it there. The
process ends at once, as by a power failure, the first time that any process of the test reaches the point.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from app import faults

EXIT_STATUS = 77
POINT, MARKER = "TEST_FAULT", "TEST_FAULT_MARKER"


class Crashed(BaseException):
    """Not an `Exception`: nothing in the product may catch it, as nothing catches a power failure."""


def _known(point: str) -> None:
    if point not in faults.POINTS:
        raise ValueError(f"{point!r} is not a fault point: see app.faults.POINTS")


@contextmanager
def installed(injector: Callable[[str], None]) -> Iterator[None]:
    faults.install(injector)
    try:
        yield
    finally:
        faults.install(None)


class Recorder:
    """Notes the points that are reached, in order."""

    def __init__(self) -> None:
        self.reached: list[str] = []

    def __call__(self, point: str) -> None:
        self.reached.append(point)


@contextmanager
def recording() -> Iterator[Recorder]:
    recorder = Recorder()
    with installed(recorder):
        yield recorder


@contextmanager
def crash_at(point: str, time: int = 1, error: type[BaseException] = Crashed) -> Iterator[None]:
    """Raises when the point is reached for the `time`-th time."""
    _known(point)
    left = time

    def inject(reached: str) -> None:
        nonlocal left
        if reached == point:
            left -= 1
            if left == 0:
                raise error(point)

    with installed(inject):
        yield


class Pause:
    """Where a thread waits. `reached` is set when it is there."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.reached = threading.Event()
        self._go_on = threading.Event()
        self._taken = threading.Lock()

    def __call__(self, point: str) -> None:
        if point == self.point and self._taken.acquire(blocking=False):
            self.reached.set()
            self._go_on.wait(60)

    def wait(self, seconds: float = 60.0) -> None:
        assert self.reached.wait(seconds), f"{self.point} was not reached within {seconds:g} s"

    def go_on(self) -> None:
        self._go_on.set()


@contextmanager
def pause_at(point: str) -> Iterator[Pause]:
    """The first thread that reaches the point waits there until `go_on`, or the end of the block."""
    _known(point)
    paused = Pause(point)
    with installed(paused):
        try:
            yield paused
        finally:
            paused.go_on()


def die_at(point: str, marker: Path, time: int = 1) -> dict[str, str]:
    """Environment of a process that is to die there. `marker` comes into being when one has: later ones live."""
    _known(point)
    return {POINT: f"{point}:{time}", MARKER: str(marker)}


def install_from(environment: Mapping[str, str]) -> None:
    if not (said := environment.get(POINT)):
        return
    point, _, count = said.partition(":")
    marker = environment[MARKER]
    left = int(count)

    def inject(reached: str) -> None:
        nonlocal left
        if reached != point:
            return
        left -= 1
        if left > 0:
            return
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os._exit(EXIT_STATUS)

    faults.install(inject)
