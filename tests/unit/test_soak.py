"""The judge of the soak: a leak is found, whatever noise it hides in; what goes up and down is flat."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest

from bench.soak.judge import LEAST, LIMITS, MIB, Sample, judge

Series = Callable[[float], float]
MINUTES = 60


def soaked(series: Mapping[str, Series], minutes: int = MINUTES, every: float = 10.0) -> list[Sample]:
    """By the name of a series, its value at a second."""
    times = [number * every for number in range(int(minutes * 60 / every))]
    return [Sample(at, {name: value(at) for name, value in series.items()}) for at in times]


def flat(name: str, series: Series, minutes: int = MINUTES) -> bool:
    (verdict,) = judge(soaked({name: series}, minutes))
    return verdict.flat


def noisy(level: float, noise: float, growth_a_minute: float = 0.0, seed: int = 7) -> Series:
    dice = random.Random(seed)
    return lambda second: level + dice.gauss(0, noise) + growth_a_minute * second / 60


def saw(low: float, high: float, seconds: float) -> Series:
    """As a table that is vacuumed now and then."""
    return lambda second: low + (high - low) * (second % seconds) / seconds


@pytest.mark.parametrize("name", [f"{word} it" for word in LIMITS if word != "connections"] + ["connections"])
def test_what_stays_is_flat(name: str) -> None:
    assert flat(name, lambda _: 100 * MIB)
    assert flat(name, noisy(100 * MIB, 3 * MIB))


def test_a_leak_of_memory_is_found() -> None:
    assert not flat("memory worker", noisy(80 * MIB, 0.5 * MIB, growth_a_minute=0.5 * MIB))
    assert not flat("memory worker", noisy(80 * MIB, 3 * MIB, growth_a_minute=0.5 * MIB))


def test_a_leak_is_found_in_ten_minutes_if_it_is_a_large_one() -> None:
    assert not flat("memory worker", noisy(80 * MIB, 0.5 * MIB, growth_a_minute=2 * MIB), minutes=10)


def test_a_connection_each_five_minutes_is_found() -> None:
    assert not flat("connections", lambda second: 20 + second // 300)


def test_a_table_that_is_vacuumed_is_flat_and_one_that_also_grows_is_not() -> None:
    up_and_down = saw(10 * MIB, 14 * MIB, 290)
    assert flat("size job", up_and_down)
    assert not flat("size job", lambda second: up_and_down(second) + 0.4 * MIB * second / 60)


def test_what_grew_while_it_warmed_is_flat() -> None:
    assert flat("memory worker", lambda second: 80 * MIB + min(second, 1500.0) / 60 * 5 * MIB)


def test_one_high_value_is_no_leak() -> None:
    assert flat("waiting jobs", lambda second: 40_000.0 if 3000 <= second < 3100 else 3.0)


def test_a_backlog_that_grows_is_found() -> None:
    assert not flat("waiting jobs", noisy(50, 20, growth_a_minute=30))
    assert not flat("oldest jobs", lambda second: max(0.0, second - 1800))


def test_too_few_samples_say_nothing() -> None:
    assert judge(soaked({"connections": lambda _: 1.0}, every=MINUTES * 60 / LEAST)) == []
    assert judge([]) == []


def test_what_grows_is_named_first() -> None:
    verdicts = judge(
        soaked({"connections": lambda _: 7.0, "size job": lambda second: second * MIB, "dead job": lambda _: 0.0})
    )
    assert [(each.series, each.flat) for each in verdicts] == [
        ("size job", False),
        ("connections", True),
        ("dead job", True),
    ]
    assert verdicts[0].most == pytest.approx(3590 * MIB)
    assert verdicts[0].gained == pytest.approx(1790 * MIB, rel=0.01)


def test_a_series_that_comes_late_is_judged_by_what_there_is() -> None:
    samples = [
        Sample(each.at, each.values if each.at > 2700 else {})
        for each in soaked({"size new": lambda second: second * MIB})
    ]
    (verdict,) = judge(samples)
    assert not verdict.flat
