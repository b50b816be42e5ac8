"""No slot is missed, none fires twice, whenever the service looks (J9)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.jobs.timetable import CatchUp, Timetable, due

ZONES = [
    "UTC",
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/St_Johns",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "America/Santiago",
]
#: Of lines that fire whenever the clock shows such a time: when that is.
SHOWN: dict[str, Callable[[datetime], bool]] = {
    "* * * * *": lambda _: True,
    "*/7 * * * *": lambda shown: shown.minute % 7 == 0,
    "15 */3 * * *": lambda shown: shown.minute == 15 and shown.hour % 3 == 0,
    "0 */2 * * *": lambda shown: shown.minute == 0 and shown.hour % 2 == 0,
    "0 */6 * * *": lambda shown: shown.minute == 0 and shown.hour % 6 == 0,
    "45 * * * *": lambda shown: shown.minute == 45,
    "*/30 2 * * *": lambda shown: shown.minute % 30 == 0 and shown.hour == 2,
}
CRONS = [
    *SHOWN,
    "30 2 * * *",
    "30 1 * * *",
    "0 0 * * *",
    "59 23 * * SUN",
    "0 1,2,3 * * *",
    "0 12 1 * *",
]
#: Days around which clocks are changed somewhere, so that most examples meet one.
CHANGES = [
    datetime(2026, month, day, tzinfo=UTC) for month, day in ((3, 28), (10, 24), (3, 7), (10, 31), (4, 4), (9, 5))
]

tables = st.builds(Timetable, st.sampled_from(ZONES), st.sampled_from(CRONS)) | st.builds(
    Timetable, st.just("UTC"), st.none(), st.timedeltas(timedelta(minutes=1), timedelta(days=3))
)
starts = st.builds(
    lambda day, seconds: day + timedelta(seconds=seconds), st.sampled_from(CHANGES), st.integers(0, 3 * 86400)
)
#: From the midnight before, twice of it ends in the hour that comes twice.
_UNTIL_TWICE = timedelta(hours=12, minutes=33)
looks = st.lists(st.timedeltas(timedelta(0), timedelta(hours=20)), min_size=1, max_size=6)


def truth(table: Timetable, first: datetime, until: datetime, most: int = 3000) -> list[datetime]:
    """Every slot up to then, one after another."""
    following = takewhile(lambda slot: slot <= until, table.after(first))
    return [first, *(slot for slot, _ in zip(following, range(most), strict=False))]


def watch(
    table: Timetable, start: datetime, pauses: list[timedelta], policy: CatchUp, most: int
) -> list[list[datetime]]:
    """What a service fires that looks after each pause; the last entry is when it looked last, and what is next."""
    next_at, now = table.first(start), start
    seen: list[list[datetime]] = []
    for pause in pauses:
        now += pause
        if next_at <= now:
            found, following = due(table, next_at, now, policy, most)
            assert all(next_at <= slot <= now for slot in found), "never early, never before what was next"
            assert following > next_at, "it moves on"
            assert following > now or len(found) == most, "and is not due already"
            next_at = following
            seen.append(found)
    return [*seen, [now, next_at]]


@given(tables, starts, looks)
@settings(max_examples=50, deadline=None)
def test_with_all_every_slot_fires_once_and_in_order(
    table: Timetable, start: datetime, pauses: list[timedelta]
) -> None:
    *fired, (now, _) = watch(table, start, pauses, CatchUp.ALL, most=400)
    flat = [slot for found in fired for slot in found]
    expected = [slot for slot in truth(table, table.first(start), now) if slot <= now]
    assert flat == expected[: len(flat)], "none missed, none doubled, none invented"
    if all(len(found) < 400 for found in fired):
        assert len(flat) == len(expected)


@given(st.sampled_from(ZONES), st.sampled_from(list(SHOWN)), starts)
@settings(max_examples=60, deadline=None)
@example("Australia/Lord_Howe", "0 */6 * * *", datetime(2026, 10, 3, 10, tzinfo=UTC))
@example("Australia/Lord_Howe", "0 */2 * * *", datetime(2026, 4, 4, 10, tzinfo=UTC))
@example("Australia/Lord_Howe", "45 * * * *", datetime(2026, 4, 4, 10, tzinfo=UTC))
def test_a_line_with_a_star_fires_whenever_the_clock_shows_its_time(zone: str, cron: str, start: datetime) -> None:
    start = start.replace(second=0)
    minutes = (start + timedelta(minutes=number) for number in range(1, 36 * 60))
    expected = [each for each in minutes if SHOWN[cron](each.astimezone(ZoneInfo(zone)))]
    assert truth(Timetable(zone, cron), start, start + timedelta(minutes=36 * 60 - 1))[1:] == expected


@given(tables, starts, looks, st.sampled_from([CatchUp.LAST, CatchUp.NONE]))
@settings(max_examples=80, deadline=None)
@example(Timetable("UTC", "* * * * *"), CHANGES[0], [timedelta(seconds=59, milliseconds=500)] * 3, CatchUp.LAST)
@example(Timetable("Europe/Berlin", "30 2 * * *"), CHANGES[0], [timedelta(hours=20)] * 4, CatchUp.LAST)
@example(Timetable("Europe/Berlin", "30 2 * * *"), datetime(2026, 10, 24, tzinfo=UTC), [_UNTIL_TWICE] * 2, CatchUp.LAST)
@example(Timetable("Europe/Dublin", "30 1 * * *"), datetime(2026, 10, 24, tzinfo=UTC), [_UNTIL_TWICE] * 2, CatchUp.NONE)
def test_with_last_the_latest_due_slot_fires_once(
    table: Timetable, start: datetime, pauses: list[timedelta], policy: CatchUp
) -> None:
    *fired, (now, next_at) = watch(table, start, pauses, policy, most=10)
    flat = [slot for found in fired for slot in found]
    expected = truth(table, table.first(start), max(now, next_at), most=20_000)
    assert flat == sorted(set(flat)), "none twice"
    assert set(flat) <= set(expected), "only slots of the timetable"
    assert next_at > now
    assert next_at == min(slot for slot in expected if slot > now), "the next one is not skipped"
