"""A moment as a whole number: microseconds since the Unix epoch, UTC. Everything that decides computes with these.

What it promises:

- `to_instant` and `to_datetime` lose nothing: there and back is the same moment, whatever its zone was.
- A moment without a zone is refused, and one outside of the years 2 to 9998, where local times could overflow.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from app.errors import BadRequest

Instant: TypeAlias = int

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_UNITS = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s"))


def span(delta: timedelta) -> int:
    """A length of time in microseconds, exactly."""
    return delta.days * DAY + delta.seconds * SECOND + delta.microseconds


#: The first moment that is taken, and the first that is too late.
FIRST: Instant = span(datetime(2, 1, 1, tzinfo=UTC) - EPOCH)
END: Instant = span(datetime(9999, 1, 1, tzinfo=UTC) - EPOCH)


def to_instant(moment: datetime, what: str = "the moment") -> Instant:
    if not isinstance(moment, datetime):
        raise BadRequest(f"{what} is {moment!r}: give a datetime with a time zone, such as datetime(…, tzinfo=UTC)")
    if moment.utcoffset() is None:
        raise BadRequest(
            f"{what} is {moment.isoformat()}, without a time zone: give one, such as datetime(…, tzinfo=UTC)"
        )
    # Through UTC: subtraction within one zone would leave out the change to summer time.
    instant = span(moment - EPOCH)
    if not FIRST <= instant < END:
        raise BadRequest(f"{what} is {moment.isoformat()}: give one from the years 2 to 9998")
    return instant


def to_datetime(instant: Instant) -> datetime:
    """In UTC. `OverflowError` where Python has no such date."""
    return EPOCH + timedelta(microseconds=instant)


def iso(instant: Instant | None) -> str | None:
    """For data. None also for what lies before or after all dates."""
    return None if instant is None or not FIRST <= instant < END else to_datetime(instant).isoformat()


def shown(instant: Instant) -> str:
    """For people: `2021-04-25 03:27:33Z`."""
    if instant < FIRST:
        return "the beginning of time"
    if instant >= END:
        return "the end of time"
    return to_datetime(instant).replace(tzinfo=None).isoformat(sep=" ") + "Z"


def length(microseconds: int, most: int = 4) -> str:
    """For people, in the words that `duration` reads one by one: `2d`, `3h 5min`, `0s`; the `most` largest units.

    >>> length(11_100_000_000)
    '3h 5min'
    """
    if microseconds < 0:
        return "-" + length(-microseconds, most)
    words = []
    for unit, word in _UNITS:
        count, microseconds = divmod(microseconds, unit)
        if count:
            words.append(f"{count}{word}")
    if microseconds:
        words.append(f"{microseconds / 1000:g}ms")
    return " ".join(words[:most]) or "0s"
