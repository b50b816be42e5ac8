"""Durations as text, and the one clock of a process.

Rules that decide something (due, overdue, a slot of a timetable) use the database's time, never this process's.
The monotonic clock here only paces loops and measures work.
"""

from __future__ import annotations

import math
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|h|d|w)\s*")
_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(s|min|h|d)\s*")


class Clock(Protocol):
    """What loops need of time; tests give them one that they turn by hand."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def duration(value: str | float | timedelta) -> timedelta:
    """`90s`, `30min`, `2h`, `2d`, `1w`, `500ms`, seconds as a number, or a timedelta.

    >>> duration("90s")
    datetime.timedelta(seconds=90)
    """
    with suppress(OverflowError, ValueError):
        match value:
            case timedelta():
                return value
            case bool():
                pass
            case int() | float():
                return timedelta(seconds=value)
            case str() if match := _DURATION.fullmatch(value):
                return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
            case _:
                pass
    negative = isinstance(value, str) and value.strip().startswith("-")
    told = f"{value!r} is not a duration{', which is never negative' * negative}"
    raise ValueError(f"{told}: write a number and ms, s, min, h, d or w, such as '90s' or '30min'")


def moment(text: str, spans: str = "2h or 30min") -> datetime | timedelta:
    """An ISO time with its zone, or a span, counted from now. `spans`: examples of what may be written.

    >>> moment("2h ago"), moment("2026-07-01T12:00:00Z").isoformat()
    (datetime.timedelta(seconds=7200), '2026-07-01T12:00:00+00:00')
    """
    words = text.strip()
    with suppress(ValueError):
        return duration(words.removeprefix("in ").removesuffix(" ago"))
    try:
        found = datetime.fromisoformat(words)
    except ValueError:
        told = f"{words!r:.100} is neither a time such as 2026-07-01T12:00:00Z nor a span such as {spans}"
        raise ValueError(told) from None
    if found.tzinfo is None:
        iso = found.isoformat()
        raise ValueError(f"{words!r:.100} has no time zone: write {iso}Z for UTC, or +03:00 at its end")
    return found


def instant(text: str, now: datetime) -> datetime:
    """An ISO time with its zone, `now`, or a span with its direction: `2h ago`, `in 2h`."""
    words = text.strip()
    if words == "now":
        return now
    found = moment(words, "'2h ago' or 'in 30min'")
    if isinstance(found, datetime):
        return found
    if not words.endswith(" ago") and not words.startswith("in "):
        raise ValueError(f"{words!r} has no direction: write '{words} ago' or 'in {words}', or a time")
    try:
        return now - found if words.endswith(" ago") else now + found
    except OverflowError:
        raise ValueError(f"{words!r} is further away than time goes") from None


@dataclass(frozen=True)
class Rate:
    """Calls per second, as the limit of a queue.

    >>> Rate.parse("6/min").per_second
    0.1
    """

    per_second: float

    @classmethod
    def parse(cls, text: str) -> Rate:
        match = _RATE.fullmatch(text)
        if not match or not 0 < float(match[1]) < math.inf:
            raise ValueError(
                f"{text!r} is not a rate: write a number above 0, a slash and s, min, h or d, as in '6/min'"
            )
        return cls(float(match[1]) / _UNITS[match[2]])

    def __str__(self) -> str:
        for unit in ("s", "min", "h", "d"):
            count = self.per_second * _UNITS[unit]
            if count >= 1 or unit == "d":
                return f"{count:.10f}".rstrip("0").rstrip(".") + f"/{unit}"
        raise AssertionError  # pragma: no cover
