"""Durations and rates as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.clock import Clock, Rate, SystemClock, duration, instant
from tests.kit.clock import FakeClock


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30min", 1800),
        ("2h", 7200),
        ("2d", 172800),
        ("1w", 604800),
        ("500ms", 0.5),
        (" 1.5 h ", 5400),
        ("0s", 0),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("value", [90, 1.5, 0, timedelta(minutes=3)])
def test_seconds_and_timedeltas_are_durations(value: float | timedelta) -> None:
    assert duration(value) == (value if isinstance(value, timedelta) else timedelta(seconds=value))


@pytest.mark.parametrize(
    "value",
    ["", "5", "s", "5 m", "-5s", "5s 3s", "1e3s", "5.s", ".5s", "inf s", "nan", "5S", True, None, "9" * 30 + "d"],
)
def test_anything_else_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(ValueError, match=r"is not a duration.*'90s'"):
        duration(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["-1", " -5s"])
def test_what_is_negative_is_refused_for_that(value: str) -> None:
    with pytest.raises(ValueError, match="is not a duration, which is never negative: write a number"):
        duration(value)


@pytest.mark.parametrize("text", ["1763600000", "soon"])
def test_what_is_no_instant_is_refused_with_spans_that_are_some(text: str) -> None:
    now = datetime(2026, 7, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match=r"nor a span such as '2h ago' or 'in 30min'$"):
        instant(text, now)
    assert instant("2h ago", now) == now - timedelta(hours=2)
    assert instant("in 30min", now) == now + timedelta(minutes=30)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_a_number_that_is_no_time_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration(value)


@pytest.mark.parametrize(
    ("text", "per_second"), [("100/s", 100), ("6/min", 0.1), ("90 / h", 0.025), ("86400/d", 1), ("0.5/s", 0.5)]
)
def test_a_rate_is_a_number_by_a_unit(text: str, per_second: float) -> None:
    assert Rate.parse(text).per_second == pytest.approx(per_second)


@pytest.mark.parametrize(
    "text", ["", "5", "/s", "5/", "0/s", "-1/s", "5/week", "5 per s", "nan/s", "inf/s", "9" * 400 + "/s"]
)
def test_a_wrong_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a rate.*'6/min'"):
        Rate.parse(text)


@given(st.floats(1e-4, 1e6), st.sampled_from(["s", "min", "h", "d"]))
def test_a_rate_reads_back_what_it_shows(count: float, unit: str) -> None:
    rate = Rate.parse(f"{count:.10f}/{unit}")
    assert Rate.parse(str(rate)).per_second == pytest.approx(rate.per_second, rel=1e-4)


def test_the_clocks_tell_the_same_story() -> None:
    fake = FakeClock()
    clocks: list[Clock] = [SystemClock(), fake]
    for clock in clocks:
        before = clock.monotonic()
        clock.sleep(0.001)
        assert clock.monotonic() - before >= 0.000_99
    assert fake.slept == [0.001]
