"""The one place of the tests that sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
PAUSE_SECONDS = 0.005
PAUSE_MOST_SECONDS = 0.1


def wait_until(predicate: Callable[[], T], timeout: float = 300.0, what: str = "") -> T:
    """Looks again and again until `predicate` says something true, and returns that; `AssertionError` if it never
    does. Pauses grow with the time waited, so that a test that waits long does not take the processor from others."""
    begun = time.monotonic()
    while True:
        if found := predicate():
            return found
        waited = time.monotonic() - begun
        if waited > timeout:
            name = what or getattr(predicate, "__name__", repr(predicate))
            raise AssertionError(f"{name} was not true within {timeout:g} s; last seen: {found!r}")
        time.sleep(min(PAUSE_MOST_SECONDS, PAUSE_SECONDS + waited / 20))


def never_within(predicate: Callable[[], object], seconds: float) -> bool:
    """Whether `predicate` stayed false for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if predicate():
            return False
        time.sleep(PAUSE_SECONDS)
    return not predicate()


def pause(seconds: float) -> None:
    """For code under test that is to take some time: the bodies of tasks."""
    time.sleep(seconds)


def wait_for_file(path: str) -> None:
    """For code under test that is to go on when a test says so, also where no database is."""
    wait_until(Path(path).exists, 300, path)


def wait_while_it_moves(look: Callable[[], T], done: Callable[[T], object], still_seconds: float = 180.0) -> T:
    """For long work on a loaded machine: until what is seen is `done`; `AssertionError` only if it stays the same."""
    seen, moved = look(), time.monotonic()
    while not done(seen):
        time.sleep(PAUSE_MOST_SECONDS)
        if (now := look()) != seen:
            seen, moved = now, time.monotonic()
        elif time.monotonic() - moved > still_seconds:
            raise AssertionError(f"nothing has moved for {still_seconds:g} s: {seen!r}")
    return seen
