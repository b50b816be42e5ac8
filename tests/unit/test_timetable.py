"""When a timetable fires (J9). Pure: every moment is an argument."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from app.errors import BadRequest
from app.jobs.timetable import CatchUp, Timetable, due

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
THIRDS = ("00", "20", "40")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def slots(table: Timetable, after: str, count: int) -> list[str]:
    return [f"{slot:%m-%dT%H:%M}" for slot in islice(table.after(at(after)), count)]


@pytest.mark.parametrize(
    ("cron", "every", "tz", "said"),
    [
        (None, None, "UTC", "either cron= or every="),
        ("* * * * *", timedelta(seconds=5), "UTC", "either cron= or every="),
        ("* * * *", None, "UTC", "is not a cron line"),
        ("61 * * * *", None, "UTC", "is not a cron line"),
        ("", None, "UTC", "is not a cron line"),
        ("* * * * *", None, "Mars/Olympus", "is not a time zone"),
        ("* * * * *", None, "", "is not a time zone"),
        ("* * * * *", None, "../../etc/passwd", "is not a time zone"),
        (None, timedelta(milliseconds=999), "UTC", "is shorter than 1 s"),
        (None, timedelta(seconds=-5), "UTC", "is shorter than 1 s"),
        (None, timedelta(days=36_526), "UTC", "is longer than 100 years"),
        (None, timedelta.max, "UTC", "is longer than 100 years"),
    ],
)
def test_a_wrong_timetable_is_refused_when_it_is_made(
    cron: str | None, every: timedelta | None, tz: str, said: str
) -> None:
    with pytest.raises(BadRequest, match=said):
        Timetable(tz, cron, every)


@pytest.mark.parametrize("cron", [5, b"* * * * *", ["* * * * *"]])
def test_a_line_is_text(cron: Any) -> None:
    with pytest.raises(BadRequest, match="is not a cron line: write text"):
        Timetable("UTC", cron)


def test_a_line_that_never_fires_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"never fires|not a cron line"):
        Timetable("UTC", "0 0 30 2 *").first(at("2026-01-01"))
    with pytest.raises(BadRequest, match=r"never fires again|not a cron line"):
        due(Timetable("UTC", "0 0 30 2 *"), at("2026-01-01"), at("2026-01-02"), CatchUp.LAST, 10)


@pytest.mark.parametrize(
    ("tz", "cron", "after", "expected"),
    [
        # 02:30 does not exist on 2026-03-29 in Berlin: it fires when the clock goes on, at 03:00 local, 01:00 UTC.
        (BERLIN, "30 2 * * *", "2026-03-28T00:00", ["03-28T01:30", "03-29T01:00", "03-30T00:30"]),
        # 02:30 comes twice on 2026-10-25: once.
        (BERLIN, "30 2 * * *", "2026-10-24T00:00", ["10-24T00:30", "10-25T00:30", "10-26T01:30"]),
        (NEW_YORK, "30 2 * * *", "2026-03-07T12:00", ["03-08T07:00", "03-09T06:30"]),
        (NEW_YORK, "30 1 * * *", "2026-10-31T12:00", ["11-01T05:30", "11-02T06:30"]),
        # What runs every hour runs every hour.
        (BERLIN, "0 * * * *", "2026-03-29T00:30", ["03-29T01:00", "03-29T02:00", "03-29T03:00"]),
        (BERLIN, "0 * * * *", "2026-10-25T00:30", ["10-25T01:00", "10-25T02:00", "10-25T03:00"]),
        # A line with a star fires whenever the clock shows such a time: twice, or not at all.
        (
            BERLIN,
            "*/20 2 * * *",
            "2026-10-24T12:00",
            [f"10-25T{hour}:{minute}" for hour in ("00", "01") for minute in THIRDS],
        ),
        (BERLIN, "0 */2 * * *", "2026-03-28T22:00", ["03-28T23:00", "03-29T02:00", "03-29T04:00"]),
        # 02:00 becomes 02:30 and, in April, 01:30.
        (LORD_HOWE, "0 */6 * * *", "2026-10-03T10:00", ["10-03T13:30", "10-03T19:00", "10-04T01:00"]),
        (LORD_HOWE, "0 */2 * * *", "2026-04-04T10:00", ["04-04T11:00", "04-04T13:00", "04-04T15:30"]),
        (LORD_HOWE, "45 * * * *", "2026-04-04T14:00", ["04-04T14:45", "04-04T15:15", "04-04T16:15"]),
        (LORD_HOWE, "35 * * * *", "2026-10-03T14:00", ["10-03T14:05", "10-03T15:05", "10-03T15:35"]),
        # It is looked at within the hour that comes twice: 02:30 has been.
        (BERLIN, "30 2 * * *", "2026-10-25T01:06", ["10-26T01:30"]),
        ("UTC", "0 9 * * MON", "2026-11-18T00:00", ["11-23T09:00", "11-30T09:00"]),
        ("Asia/Kolkata", "0 0 1 * *", "2026-01-15T00:00", ["01-31T18:30", "02-28T18:30"]),
    ],
)
def test_cron_follows_the_wall_clock_of_its_zone(tz: str, cron: str, after: str, expected: list[str]) -> None:
    assert slots(Timetable(tz, cron), after, len(expected)) == expected


def test_an_interval_begins_at_once_and_a_cron_line_with_its_next_slot() -> None:
    now = at("2026-05-01T12:00:30")
    assert Timetable(every=timedelta(minutes=5)).first(now) == now
    assert Timetable(cron="*/5 * * * *").first(now) == at("2026-05-01T12:05")


def fired(table: Timetable, next_at: str, now: str, policy: CatchUp, most: int = 1000) -> tuple[list[str], str]:
    found, following = due(table, at(next_at), at(now), policy, most)
    return [f"{slot:%H:%M}" for slot in found], f"{following:%H:%M}"


@pytest.mark.parametrize("table", [Timetable(cron="*/10 * * * *"), Timetable(every=timedelta(minutes=10))])
def test_catch_up_says_what_happens_to_slots_that_were_missed(table: Timetable) -> None:
    # J9
    missed = "2026-05-01T12:00", "2026-05-01T12:34"
    assert fired(table, *missed, CatchUp.LAST) == (["12:30"], "12:40")
    assert fired(table, *missed, CatchUp.ALL) == (["12:00", "12:10", "12:20", "12:30"], "12:40")
    assert fired(table, *missed, CatchUp.NONE) == ([], "12:40")


@pytest.mark.parametrize("policy", list(CatchUp))
def test_a_slot_that_is_seen_in_time_fires_whatever_the_policy(policy: CatchUp) -> None:
    table = Timetable(cron="0 * * * *")
    assert fired(table, "2026-05-01T12:00", "2026-05-01T12:00", policy) == (["12:00"], "13:00")
    assert fired(table, "2026-05-01T12:00", "2026-05-01T12:00:59", policy) == (["12:00"], "13:00")


def test_catching_up_is_bounded_and_goes_on_where_it_stopped() -> None:
    table = Timetable(cron="* * * * *")
    assert fired(table, "2026-05-01T12:00", "2026-05-01T13:00", CatchUp.ALL, most=3) == (
        ["12:00", "12:01", "12:02"],
        "12:03",
    )


@pytest.mark.parametrize("now", ["2026-05-01T12:00:59.500", "2026-05-01T12:00:59.999999", "2026-05-01T12:00:00.000001"])
def test_a_slot_never_fires_before_its_time(now: str) -> None:
    found, following = due(Timetable(cron="* * * * *"), at("2026-05-01T12:00"), at(now), CatchUp.LAST, 10)
    assert found == [at("2026-05-01T12:00")]
    assert following == at("2026-05-01T12:01")


@pytest.mark.parametrize(
    ("tz", "cron", "next_at", "now", "expected"),
    [
        (BERLIN, "30 2 * * *", "2026-10-24T00:30", "2026-10-25T01:06", ("10-25T00:30", "10-26T01:30")),
        ("Europe/Dublin", "30 1 * * *", "2026-10-24T00:30", "2026-10-25T01:06", ("10-25T00:30", "10-26T01:30")),
        ("America/St_Johns", "30 1 * * *", "2026-10-31T04:00", "2026-11-01T04:40", ("11-01T04:00", "11-02T05:00")),
        (LORD_HOWE, "45 1 * * *", "2026-04-03T14:45", "2026-04-04T15:05", ("04-04T14:45", "04-05T15:15")),
        (LORD_HOWE, "0 */2 * * *", "2026-04-04T11:00", "2026-04-04T16:00", ("04-04T15:30", "04-04T17:30")),
    ],
)
def test_an_outage_that_ends_around_a_change_of_the_clock(
    tz: str, cron: str, next_at: str, now: str, expected: tuple[str, str]
) -> None:
    [found], following = due(Timetable(tz, cron), at(next_at), at(now), CatchUp.LAST, 100)
    assert (f"{found:%m-%dT%H:%M}", f"{following:%m-%dT%H:%M}") == expected


def test_a_year_of_missed_minutes_is_not_walked_over() -> None:
    found, following = due(Timetable(cron="* * * * *"), at("2025-05-01"), at("2026-05-01"), CatchUp.LAST, 10)
    assert (found, following) == ([at("2026-05-01")], at("2026-05-01T00:01"))


def test_the_zone_of_the_moments_does_not_matter() -> None:
    here = at("2026-05-01T12:00").astimezone(ZoneInfo("Asia/Tokyo"))
    for table in (Timetable(BERLIN, "0 15 * * *"), Timetable(every=timedelta(hours=1))):
        assert next(table.after(here)) == next(table.after(at("2026-05-01T12:00")))
        assert next(table.after(here)).utcoffset() == timedelta(0)
