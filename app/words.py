"""How times and numbers are told to people: on the command line, by the checks, and on the pages of the console."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

LINE = 300
#: Of very many rows, no more are counted.
COUNTED = 100_000
_STEPS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def when(moment: datetime, now: datetime | None = None) -> str:
    """In UTC, with how long ago that was.

    >>> when(datetime(2026, 7, 1, 12, tzinfo=UTC), datetime(2026, 7, 1, 12, 1, 30, tzinfo=UTC))
    '2026-07-01 12:00:00 (1min 30s ago)'
    """
    distance = (now or datetime.now(UTC)) - moment
    words = f"in {span(-distance)}" if distance < timedelta(0) else f"{span(distance)} ago"
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} ({words})"


def span(value: timedelta) -> str:
    """The two largest units.

    >>> span(timedelta(hours=26, seconds=3)), span(timedelta(seconds=0.25))
    ('1d 2h', '0.2s')
    """
    seconds = value.total_seconds()
    if abs(seconds) < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    parts, left = [], int(seconds)
    for unit, size in _STEPS:
        count, rest = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
            left = rest
    return " ".join(parts[:2])


def resting(why: str | None, until: datetime | None) -> str | None:
    """Of a queue that is paused by itself."""
    if why is None:
        return None
    left = timedelta(0) if until is None else until - datetime.now(UTC)
    return f"paused: {why}, next try {'with its next work' if left <= timedelta(0) else 'in ' + span(left)}"


def first_line(text: str | None) -> str | None:
    if text is None:
        return None
    line = text.strip().partition("\n")[0]
    return line if len(line) <= LINE else f"{line[: LINE - 1]}…"


def several(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def counted(number: int) -> str | int:
    return f"{number}+" if number >= COUNTED else number
