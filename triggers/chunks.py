"""Chunks: time cut into numbered pieces of one scale (T5, T6, T7).

What it promises:

- `number` says in which chunk an instant lies. It never runs backwards in time, in any zone.
- `start(number)` is the first instant whose number is that or more.
- Under a day: cut on the UTC line, counted from the Unix epoch, whatever the zone. A day and longer: by the local date
  in `tz`; weeks begin on Monday.
- No instant raises.

>>> Scale.parse("30min").number(6_133_000_000)  # 01:42:13
3
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Any

from app.errors import BadRequest
from triggers.days import Days, days_of
from triggers.instants import HOUR, MINUTE, Instant, to_datetime, to_instant

__all__ = ["Instant", "Scale", "to_datetime", "to_instant"]

_EVEN = re.compile(r"([1-9][0-9]{0,4})?(min|hour)")
_WIDTHS = {"min": MINUTE, "hour": HOUR}
#: A calendar unit is a number of months, or a week or day.
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
#: 1970-01-01 was a Thursday: the week of that day began three days before it.
_THURSDAY = 3
_ORDINAL = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _ORDINAL, date.max.toordinal() - _ORDINAL


@dataclass(frozen=True, slots=True)
class Scale:
    """Made by `Scale.parse`. `text` is its one spelling: `1hour` becomes `hour`."""

    text: str
    tz: str
    number: Callable[[Instant], int] = field(repr=False, compare=False)
    start: Callable[[int], Instant] = field(repr=False, compare=False)

    @staticmethod
    def parse(text: str, tz: str = "UTC") -> Scale:
        if not isinstance(tz, str):
            raise BadRequest(f"tz={tz!r} is not a time zone: write one such as 'Europe/Moscow'")
        if not isinstance(text, str):
            raise _unknown(text)
        return _parse(text, tz)

    @property
    def by_date(self) -> bool:
        """A day or longer, so that the zone matters."""
        return not _EVEN.fullmatch(self.text)

    def __reduce__(self) -> tuple[Any, ...]:
        return Scale.parse, (self.text, self.tz)


@lru_cache(maxsize=1024)
def _parse(text: str, tz: str) -> Scale:
    days = days_of(tz)  # an unknown zone is refused for every scale
    if match := _EVEN.fullmatch(text):
        count = int(match[1] or 1)
        width = count * _WIDTHS[match[2]]
        spelled = f"{count}{match[2]}" if count > 1 else match[2]
        return Scale(spelled, tz, lambda instant: instant // width, lambda number: number * width)
    match text:
        case "day":
            return Scale(text, tz, days.number, days.start)
        case "week":
            return Scale(
                text,
                tz,
                lambda instant: (days.number(instant) + _THURSDAY) // 7,
                lambda number: days.start(number * 7 - _THURSDAY),
            )
        case "month" | "quarter" | "year":
            return _calendar(text, tz, days, _MONTHS[text])
        case _:
            raise _unknown(text)


def _calendar(text: str, tz: str, days: Days, months: int) -> Scale:
    """Counted from the year 0, which is far enough for everybody."""

    def number(instant: Instant) -> int:
        day = min(max(days.number(instant), _FIRST_DAY), _LAST_DAY)
        local = date.fromordinal(day + _ORDINAL)
        return (local.year * 12 + local.month - 1) // months

    def start(number: int) -> Instant:
        year, month = divmod(number * months, 12)
        if year < date.min.year:
            return days.start(_FIRST_DAY)
        if year > date.max.year:
            return days.start(_LAST_DAY + 1)
        return days.start(date(year, month + 1, 1).toordinal() - _ORDINAL)

    return Scale(text, tz, number, start)


def _unknown(text: object) -> BadRequest:
    return BadRequest(
        f"scale={text!r} is not a scale: write a number and min or hour, such as '30min' or '6hour', "
        "or one of 'day', 'week', 'month', 'quarter', 'year'"
    )
