"""The times that stages ask for. Pure: now is an argument."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from app.words import span

#: Not so far that a reader in another time zone would see a year of five digits.
FARTHEST = timedelta(days=36_525)


def moment(what: str, value: Any, now: datetime) -> datetime:
    """A time as it is, or so long from now; `ValueError` for what is neither, or is more than 100 years away."""
    try:
        if isinstance(value, datetime):
            if value.utcoffset() is None:
                raise ValueError(
                    f"{what} {value.isoformat()} has no time zone: give one, such as datetime(…, tzinfo=UTC)"
                )
            # Two times of one zone are compared by their clocks, which go back once a year.
            at = value.astimezone(UTC)
        elif isinstance(value, timedelta):
            at = now + value
        else:
            raise ValueError(f"{what} {value!r:.100} must be a datetime with a time zone, or a timedelta from now")
        if -FARTHEST <= at - now <= FARTHEST:
            return at
    except OverflowError:
        pass
    told = value.isoformat() if isinstance(value, datetime) else span(value)
    raise ValueError(f"{what} {told} lies more than 100 years away: write a nearer one")
