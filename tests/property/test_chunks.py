"""Chunk numbers never run backwards, in any zone, and starts fit them (T7)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from zoneinfo import ZoneInfo, available_timezones

from hypothesis import example, given, settings
from hypothesis import strategies as st

from triggers.chunks import Scale, to_datetime, to_instant

ZONES = sorted(available_timezones())
SCALES = ["min", "7min", "30min", "hour", "6hour", "day", "week", "month", "quarter", "year"]
MINUTE = 60_000_000

zones = st.sampled_from(ZONES)
scales = st.sampled_from(SCALES)
#: Anywhere, but mostly where zones changed their clocks.
moments = st.one_of(
    [
        st.datetimes(first, last, timezones=st.just(UTC))
        for first, last in (
            (datetime(1840, 1, 1), datetime(2040, 1, 1)),  # noqa: DTZ001
            (datetime(2, 1, 4), datetime(9998, 12, 30)),  # noqa: DTZ001
        )
    ]
)
GOOSE_BAY = datetime(1999, 10, 31, 3, 1, tzinfo=UTC)
SITKA = datetime(1867, 10, 19, 0, 31, 13, tzinfo=UTC)
KWAJALEIN = datetime(1969, 10, 1, tzinfo=UTC)
MANILA = datetime(1844, 12, 31, tzinfo=UTC)


def local_number(moment: datetime, scale: str, zone: ZoneInfo) -> int:
    """What the calendar on the wall says."""
    day = moment.astimezone(zone).date()
    match scale:
        case "day":
            return day.toordinal()
        case "week":
            return (day - timedelta(days=day.weekday())).toordinal()
        case "month":
            return day.year * 12 + day.month
        case "quarter":
            return day.year * 4 + (day.month - 1) // 3
        case _:
            return day.year


@given(zones, st.sampled_from(["day", "week", "month", "quarter", "year"]), moments)
@settings(max_examples=80, deadline=None)
@example("America/Goose_Bay", "day", GOOSE_BAY)
@example("America/Goose_Bay", "month", GOOSE_BAY + timedelta(days=1))
@example("America/Sitka", "day", SITKA)
@example("Pacific/Kwajalein", "day", KWAJALEIN)
@example("Asia/Manila", "week", MANILA)
def test_the_number_is_the_running_maximum_of_the_local_date(tz: str, scale: str, moment: datetime) -> None:
    chunks, zone = Scale.parse(scale, tz), ZoneInfo(tz)
    steps = [moment + timedelta(minutes=minutes) for minutes in range(-2 * 1440, 1)]
    naive = list(accumulate((local_number(step, scale, zone) for step in steps), max))
    numbers = [chunks.number(to_instant(step)) for step in steps]
    assert numbers == sorted(numbers)
    # Both count the same chunks, from different zeros: they change together.
    day = timedelta(days=1) // timedelta(minutes=1)
    changes = [[later > earlier for earlier, later in pairwise(each[day:])] for each in (numbers, naive)]
    assert changes[0] == changes[1]


@given(zones, scales, moments, st.integers(0, 3 * 86_400_000_000))
@settings(max_examples=300, deadline=None)
@example("America/Goose_Bay", "day", GOOSE_BAY - timedelta(minutes=1), MINUTE)
@example("America/Sitka", "day", SITKA - timedelta(days=1), 86_400_000_000)
def test_numbers_never_run_backwards(tz: str, scale: str, moment: datetime, later: int) -> None:
    chunks, instant = Scale.parse(scale, tz), to_instant(moment)
    assert chunks.number(instant) <= chunks.number(instant + later)


def test_numbers_never_run_backwards_in_any_zone_in_the_autumn_of_1999() -> None:
    for tz in ZONES:
        number = Scale.parse("day", tz).number
        found = [number(to_instant(GOOSE_BAY) + half * 30 * MINUTE) for half in range(-20 * 48, 20 * 48, 3)]
        assert found == sorted(found), tz


@given(zones, scales, moments)
@settings(max_examples=300, deadline=None)
@example("Pacific/Apia", "day", datetime(2011, 12, 30, 10, tzinfo=UTC))
@example("Africa/Cairo", "day", datetime(2024, 4, 25, 22, tzinfo=UTC))
def test_a_chunk_starts_at_its_first_instant(tz: str, scale: str, moment: datetime) -> None:
    chunks, instant = Scale.parse(scale, tz), to_instant(moment)
    number = chunks.number(instant)
    start = chunks.start(number)
    assert start <= instant < chunks.start(number + 1)
    assert chunks.number(start) == number
    assert chunks.number(start - 1) < number
    if scale.endswith(("min", "hour")):
        assert (to_datetime(start) - datetime(1970, 1, 1, tzinfo=UTC)) % timedelta(minutes=1) == timedelta(0)
        assert (chunks.number(0), chunks.start(0)) == (0, 0)
