"""The days of a zone: which local date an instant has, and when that date begins.

What it promises:

- A day is a whole number: days since 1970-01-01 on the local calendar.
- `number` never runs backwards in time. Where clocks were set back over midnight, the later date stays (T7).
- `start(day)` is the first instant whose number is `day` or more: local midnight, or the first moment after it that
  exists. So `number(start(day)) >= day > number(start(day) - 1)`, and it is `day` unless the zone left that date out.
- No instant raises, however far away: the zone's first and last offsets go on for ever.

How: for each UTC day, the few instants at which the local date changes are found once and remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import cache
from zoneinfo import ZoneInfo

from app.errors import BadRequest
from triggers.instants import DAY, END, FIRST, HOUR, SECOND, Instant, span, to_datetime

#: Offsets are within a day of UTC, so a clock set back can reach two days, no more.
_REACH = 2 * DAY
#: Of UTC days remembered in one zone; when it is full it is emptied.
_REMEMBERED = 4096
#: No zone changed its offset twice within four days; looking this often finds every change.
_PROBE = 6 * HOUR

Steps = tuple[tuple[Instant, int], ...]


@dataclass(frozen=True, slots=True)
class Days:
    number: Callable[[Instant], int]
    start: Callable[[int], Instant]


@cache
def days_of(tz: str) -> Days:
    if tz == "UTC":  # also where the machine has no time zone data
        return Days(lambda instant: instant // DAY, lambda day: day * DAY)
    return _days_of_zone(_zone(tz))


def _zone(tz: str) -> ZoneInfo:
    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, OSError, TypeError):
        raise BadRequest(f"tz={tz!r} is not a time zone: write one such as 'Europe/Moscow'") from None


def _days_of_zone(zone: tzinfo) -> Days:
    remembered: dict[int, Steps] = {}

    def steps(utc_day: int) -> Steps:
        found = remembered.get(utc_day)
        if found is None:
            if len(remembered) >= _REMEMBERED:
                remembered.clear()
            found = remembered[utc_day] = _steps(zone, utc_day * DAY)
        return found

    def number(instant: Instant) -> int:
        day = 0
        for since, later in steps(instant // DAY):
            if since > instant:
                break
            day = later
        return day

    def start(day: int) -> Instant:
        # Offsets are within a day, so the date begins in one of three UTC days.
        return next(since for utc_day in (day - 1, day, day + 1) for since, later in steps(utc_day) if later >= day)

    return Days(number, start)


def _steps(zone: tzinfo, begin: Instant) -> Steps:
    """Within the UTC day that begins then: from when on which date counts."""
    end = begin + DAY
    found: list[tuple[Instant, int]] = []
    day: int | None = None
    for since, until, offset in _pieces(zone, begin - _REACH, end):
        midnight = ((since + offset) // DAY + 1) * DAY - offset
        for instant in (since, *range(midnight, until, DAY)):
            local = (instant + offset) // DAY
            if day is None or local > day:  # the running maximum
                day = local
                if instant > begin:
                    found.append((instant, day))
                else:
                    found = [(begin, day)]
    return tuple(found)


def _pieces(zone: tzinfo, begin: Instant, end: Instant) -> list[tuple[Instant, Instant, int]]:
    """From when to when which offset."""
    pieces = []
    since, offset = begin, _offset(zone, begin)
    for probe in range(begin + _PROBE, end + 1, _PROBE):
        after = _offset(zone, probe)
        if after != offset:
            change = _change(zone, probe - _PROBE, probe)
            pieces.append((since, change, offset))
            since, offset = change, after
    if since < end:
        pieces.append((since, end, offset))
    return pieces


def _change(zone: tzinfo, before: Instant, after: Instant) -> Instant:
    """The second at which the offset changes."""
    old = _offset(zone, before)
    low, high = before // SECOND, -(-after // SECOND)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, middle * SECOND) == old:
            low = middle
        else:
            high = middle
    return high * SECOND


def _offset(zone: tzinfo, instant: Instant) -> int:
    local: datetime = to_datetime(min(max(instant, FIRST), END)).astimezone(zone)
    offset = local.utcoffset()
    assert offset is not None  # noqa: S101 - a zone knows its offset
    return span(offset)
