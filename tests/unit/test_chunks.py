"""Chunks: numbers and starts, on the UTC line and on local dates."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from app.errors import BadRequest
from triggers import days as calendar
from triggers.chunks import Scale, to_datetime, to_instant
from triggers.instants import DAY, SECOND, length


def at(text: str) -> int:
    return to_instant(datetime.fromisoformat(text).replace(tzinfo=UTC))


def start_of(text: str, scale: str, tz: str = "UTC") -> str:
    """Rounded down to the start of its chunk."""
    chunks = Scale.parse(scale, tz)
    return to_datetime(chunks.start(chunks.number(at(text)))).replace(tzinfo=None).isoformat(sep=" ")


@pytest.mark.parametrize(
    ("moment", "scale", "start"),
    [
        # T5
        ("2021-04-23 01:42:13", "30min", "2021-04-23 01:30:00"),
        ("2021-04-23 01:30:00", "30min", "2021-04-23 01:30:00"),
        ("2021-04-23 01:29:59.999999", "30min", "2021-04-23 01:00:00"),
        ("2021-04-23 01:42:13", "min", "2021-04-23 01:42:00"),
        ("2021-04-23 01:42:13", "hour", "2021-04-23 01:00:00"),
        ("2021-04-23 23:42:13", "6hour", "2021-04-23 18:00:00"),
        ("2021-04-23 01:42:13", "7min", "2021-04-23 01:40:00"),
        ("1969-12-31 23:59:59", "30min", "1969-12-31 23:30:00"),
        ("2021-04-23 01:42:13", "day", "2021-04-23 00:00:00"),
        ("2021-04-25 23:59:59", "week", "2021-04-19 00:00:00"),
        ("2021-04-26 00:00:00", "week", "2021-04-26 00:00:00"),
        ("1970-01-01 00:00:00", "week", "1969-12-29 00:00:00"),
        # T6
        ("2024-02-29 12:00:00", "month", "2024-02-01 00:00:00"),
        ("2024-12-31 23:59:59", "month", "2024-12-01 00:00:00"),
        ("2025-01-01 00:00:00", "month", "2025-01-01 00:00:00"),
        ("2024-06-30 23:59:59", "quarter", "2024-04-01 00:00:00"),
        ("2024-12-31 23:59:59", "year", "2024-01-01 00:00:00"),
        ("0002-01-01 00:00:00", "year", "0002-01-01 00:00:00"),
        ("9998-12-31 23:59:59", "quarter", "9998-10-01 00:00:00"),
    ],
)
def test_a_moment_is_rounded_down_to_the_start_of_its_chunk(moment: str, scale: str, start: str) -> None:
    assert start_of(moment, scale) == start


@pytest.mark.parametrize(
    ("text", "spelled", "cut"),
    [("1hour", "hour", "even"), ("hour", "hour", "even"), ("2min", "2min", "even"), ("day", "day", "by date")],
)
def test_a_scale_has_one_spelling_and_knows_whether_the_zone_matters(text: str, spelled: str, cut: str) -> None:
    found = Scale.parse(text)
    assert found.text == spelled
    assert found.by_date is (cut == "by date")


def test_the_years_at_both_ends_have_their_starts() -> None:
    year = Scale.parse("year")
    ends = [to_instant(datetime(each, 1, 1, tzinfo=UTC)) for each in (2, 9998)]
    assert [year.start(each) for each in (2, 9998)] == ends
    # Python's dates begin with the year 1, and end with 9999: what is beyond begins where these do.
    assert [(year.start(each) - year.start(other)) // DAY for each, other in ((0, 1), (2, 1), (9999, 9998))] == [
        *(0, 365, 365)
    ]
    assert [(year.start(each) - year.start(9999)) // DAY for each in (10_000, 20_000)] == [365, 365]
    month = Scale.parse("month")
    assert (month.start(1 * 12 + 4) - month.start(1 * 12)) // DAY == 120


@pytest.mark.parametrize("moment", [datetime(1, 12, 31, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)])
def test_a_moment_outside_of_the_years_that_are_taken_is_refused(moment: datetime) -> None:
    with pytest.raises(BadRequest, match="from the years 2 to 9998"):
        to_instant(moment)


@pytest.mark.parametrize(
    ("moment", "scale", "tz", "start"),
    [
        # T7
        ("2021-04-23 21:00:00", "day", "Europe/Moscow", "2021-04-23 21:00:00"),
        ("2021-04-23 20:59:59", "day", "Europe/Moscow", "2021-04-22 21:00:00"),
        ("2021-04-23 18:29:59", "day", "Asia/Kolkata", "2021-04-22 18:30:00"),
        ("2021-04-23 18:30:00", "day", "Asia/Kolkata", "2021-04-23 18:30:00"),
        # Days of 23 and of 25 hours.
        ("2026-03-29 21:59:59", "day", "Europe/Berlin", "2026-03-28 23:00:00"),
        ("2026-10-25 22:59:59", "day", "Europe/Berlin", "2026-10-24 22:00:00"),
        # Midnight does not exist: the day begins at 01:00.
        ("2024-04-26 12:00:00", "day", "Africa/Cairo", "2024-04-25 22:00:00"),
        ("2022-09-11 12:00:00", "day", "America/Santiago", "2022-09-11 04:00:00"),
        # The clock is set back at midnight: the hour before it comes twice, and the next day after that.
        ("2023-10-26 21:59:59", "day", "Africa/Cairo", "2023-10-25 21:00:00"),
        ("2023-10-26 22:00:00", "day", "Africa/Cairo", "2023-10-26 22:00:00"),
        ("2023-04-02 03:59:59", "day", "America/Santiago", "2023-04-01 03:00:00"),
        ("2023-04-02 04:00:00", "day", "America/Santiago", "2023-04-02 04:00:00"),
        ("2026-01-01 00:00:00", "year", "America/New_York", "2025-01-01 05:00:00"),
        ("2026-01-31 23:00:00", "month", "Asia/Tokyo", "2026-01-31 15:00:00"),
        ("2026-04-26 21:00:00", "week", "Europe/Moscow", "2026-04-26 21:00:00"),
        # Under a day the zone does not matter, in half-hour zones neither.
        ("2021-04-23 01:42:13", "hour", "Asia/Kolkata", "2021-04-23 01:00:00"),
        ("2021-04-23 01:42:13", "30min", "Australia/Lord_Howe", "2021-04-23 01:30:00"),
    ],
)
def test_days_and_longer_follow_the_local_date(moment: str, scale: str, tz: str, start: str) -> None:
    assert start_of(moment, scale, tz) == start


def test_a_clock_set_back_over_midnight_does_not_take_the_day_back() -> None:
    # T7: at 00:01 on 1999-10-31 Goose Bay went back to 23:01 of the day before.
    days = Scale.parse("day", "America/Goose_Bay")
    back = at("1999-10-31 03:01:00")
    assert datetime(1999, 10, 31, 3, 0, 30, tzinfo=UTC).astimezone(ZoneInfo("America/Goose_Bay")).day == 31
    assert datetime(1999, 10, 31, 3, 1, 30, tzinfo=UTC).astimezone(ZoneInfo("America/Goose_Bay")).day == 30
    assert days.number(back - 1) == days.number(back) == days.number(back + 3_600_000_000)
    assert to_datetime(days.start(days.number(back))) == datetime(1999, 10, 31, 3, 0, tzinfo=UTC)


def test_a_date_that_a_zone_left_out_begins_with_the_next_one() -> None:
    # T7: Samoa had no 2011-12-30.
    days = Scale.parse("day", "Pacific/Apia")
    before = days.number(at("2011-12-30 09:59:59"))
    assert days.number(at("2011-12-30 10:00:00")) == before + 2
    assert days.start(before + 1) == days.start(before + 2) == at("2011-12-30 10:00:00")


@pytest.mark.parametrize("scale", ["30min", "day", "week", "month", "quarter", "year"])
@pytest.mark.parametrize("tz", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_no_instant_is_too_far_away(scale: str, tz: str) -> None:
    chunks = Scale.parse(scale, tz)
    moments = [-(10**18), at("0002-01-01"), at("2026-01-01"), at("9998-12-31 23:59:59.999999"), 10**18]
    numbers = [chunks.number(moment) for moment in moments]
    assert numbers == sorted(numbers)
    assert chunks.start(numbers[0] - 10**9) < chunks.start(numbers[2]) < chunks.start(numbers[-1] + 10**9)


@pytest.mark.parametrize(
    "text",
    ["", "0min", "01min", "5", "min30", "30 min", "1.5hour", "hours", "2day", "DAY", "decade", "999999min", None, 5],
)
def test_an_unknown_scale_is_refused_with_the_list(text: object) -> None:
    with pytest.raises(BadRequest, match=r"is not a scale: write .*'30min'.*'quarter', 'year'"):
        Scale.parse(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", ["hour", "day", "year"])
@pytest.mark.parametrize("tz", ["Mars/Olympus", "", "../../etc/passwd", None, 3, ["UTC"]])
def test_an_unknown_zone_is_refused_for_every_scale(scale: str, tz: object) -> None:
    with pytest.raises(BadRequest, match="is not a time zone: write one such as 'Europe/Moscow'"):
        Scale.parse(scale, tz)  # type: ignore[arg-type]


def test_one_spelling_and_copies_are_equal() -> None:
    assert Scale.parse("1hour") == Scale.parse("hour") != Scale.parse("60min")
    scale = Scale.parse("day", "Europe/Moscow")
    assert pickle.loads(pickle.dumps(scale)) == copy.deepcopy(scale) == scale  # noqa: S301


def test_instants_keep_every_microsecond_whatever_the_zone() -> None:
    moment = datetime(2026, 10, 25, 2, 30, 0, 123457, tzinfo=ZoneInfo("Europe/Berlin"))
    assert to_datetime(to_instant(moment)) == moment.astimezone(UTC)
    # The hour that comes twice: an hour apart, though the clock says the same.
    assert to_instant(moment.replace(fold=1)) - to_instant(moment) == 3_600_000_000


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        (datetime(2026, 1, 1), "without a time zone: give one, such as"),  # noqa: DTZ001
        ("2026-01-01", "give a datetime with a time zone"),
        (datetime.max.replace(tzinfo=UTC), "years 2 to 9998"),
        (datetime.min.replace(tzinfo=UTC), "years 2 to 9998"),
    ],
)
def test_a_moment_that_cannot_be_placed_is_refused(moment: datetime, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        to_instant(moment)


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(days=2), "2d"),
        (timedelta(hours=3, minutes=5), "3h 5min"),
        (timedelta(milliseconds=1500), "1s 500ms"),
        (timedelta(microseconds=1), "0.001ms"),
        (timedelta(seconds=-90), "-1min 30s"),
    ],
)
def test_lengths_are_said_in_units(delta: timedelta, text: str) -> None:
    assert length(round(delta.total_seconds() * 1e6)) == text


@pytest.mark.parametrize("seconds", range(1, 9))
def test_a_change_of_the_offset_is_found_to_the_second(seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # T7
    begin = 1_000 * SECOND
    change = begin + seconds * SECOND
    monkeypatch.setattr(calendar, "_offset", lambda _, instant: int(instant >= change))
    assert calendar._change(UTC, begin, begin + 8 * SECOND) == change
