"""When a task that asks for it is tried again: what is no time is refused, what has passed is now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from app.calling import retry_time
from app.errors import BadRequest

NOW, PAST = timedelta(0), datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "at", "span"),
    [
        (None, None, NOW),
        (0, None, NOW),
        (-5, None, NOW),
        (-1e9, None, NOW),
        (timedelta(days=-1), None, NOW),
        (1.5, None, timedelta(seconds=1.5)),
        (timedelta(minutes=2), None, timedelta(minutes=2)),
        (timedelta(days=36_525), None, timedelta(days=36_525)),
        (PAST, PAST, NOW),
        (PAST.replace(tzinfo=None), PAST, NOW),
        (PAST.astimezone(timezone(timedelta(hours=3))), PAST, NOW),
    ],
)
def test_what_is_a_time(value: Any, at: datetime | None, span: timedelta) -> None:
    assert retry_time("countdown", value) == (at, span)


@pytest.mark.parametrize(
    "value",
    [
        *(float("nan"), float("inf"), -float("inf"), 1e12, 1e300, 10**5000, -(10**5000)),
        *("60", b"60", True, [], timedelta.max, timedelta.min),
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=12))),
    ],
    ids=lambda value: repr(value)[:30] if not isinstance(value, int) else "int",
)
def test_what_is_none(value: Any) -> None:
    with pytest.raises(BadRequest, match=r"^countdown=.{1,250} must (be a datetime|lie between the years)"):
        retry_time("countdown", value)
