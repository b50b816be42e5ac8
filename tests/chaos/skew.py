"""A program whose clock is wrong: `python -m tests.chaos.skew SECONDS MODULE ARGUMENTS…`.

What it reads of the time of day is off by so much, its children's too; the monotonic clock is not.
"""

from __future__ import annotations

import datetime
import runpy
import sys
import time
from collections.abc import Sequence
from typing import Any

_Real, _time, _time_ns = datetime.datetime, time.time, time.time_ns


def install(seconds: float) -> None:
    """Before anything else is imported that takes the names from these modules."""
    by = datetime.timedelta(seconds=seconds)

    class _Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, _Real)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, _Real)

    class Skewed(datetime.datetime, metaclass=_Kind):
        """Makes moments of the real class only."""

        def __new__(cls, *words: Any, **named: Any) -> Any:
            return _Real(*words, **named)

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return _Real.now(tz) + by

        @classmethod
        def utcnow(cls) -> Any:
            return _Real.now(datetime.UTC).replace(tzinfo=None) + by

        @classmethod
        def today(cls) -> Any:
            return cls.now()

    datetime.datetime = Skewed  # type: ignore[misc]
    time.time = lambda: _time() + seconds
    time.time_ns = lambda: _time_ns() + int(seconds * 1e9)


def celery(seconds: int) -> Sequence[str]:
    """The module and its first arguments, to be started by `python -m`."""
    return (__spec__.name, str(seconds), "celery")


def set_clock(command: list[str], seconds: int) -> None:
    """Of a program, with its next start."""
    command[command.index(__spec__.name) + 1] = str(seconds)


if __name__ == "__main__":
    install(float(sys.argv[1]))
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
