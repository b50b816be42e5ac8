"""The loop of the scheduler, on a clock turned by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from app.duties import Duties
from app.errors import Unavailable
from app.registry import Pass
from app.scheduler import STANDBY_SECONDS, Loop


@dataclass(frozen=True)
class Full:
    more: bool = True


class HandClock(threading.Event):
    """An event whose `wait` turns the clock instead of waiting."""

    def __init__(self, until: float) -> None:
        super().__init__()
        self.now, self.until = 0.0, until

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        if self.now >= self.until:
            self.set()
        return self.is_set()


@dataclass
class SomeDuties(Duties):
    leads: Callable[[str], bool] = lambda _: True
    asked: list[str] = field(default_factory=list)
    session: int = 1

    def hold(self, name: str) -> bool:
        self.asked.append(name)
        return self.leads(name)


def _run(until: float, passes: list[Pass], leads: Callable[[str], bool] = lambda _: True) -> None:
    clock = HandClock(until)
    Loop(passes, SomeDuties(leads), clock, lambda: clock.now).run()


def _noting(name: str, every: float, notes: list[str], result: Callable[[], Any] = lambda: None) -> Pass:
    def run() -> Any:
        notes.append(name)
        return result()

    return Pass(name, run, timedelta(seconds=every))


def test_each_pass_has_its_own_interval() -> None:
    notes: list[str] = []
    _run(10.5, [_noting("quick", 1, notes), _noting("slow", 5, notes)])
    assert notes.count("quick") == 11
    assert notes.count("slow") == 3


def test_a_standby_makes_no_pass_and_asks_again() -> None:
    notes: list[str] = []
    asked: list[str] = []

    def leads(name: str) -> bool:
        asked.append(name)
        return len(asked) > 4

    _run(STANDBY_SECONDS * 6.5, [_noting("quick", 0.05, notes)], leads)
    assert len(asked) > 5
    assert notes, "it became the leader"
    assert asked[:4] == ["quick"] * 4


def test_a_broken_pass_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    notes: list[str] = []

    def broken() -> None:
        raise ZeroDivisionError

    _run(3.5, [_noting("broken", 1, notes, broken), _noting("sound", 1, notes)])
    assert notes.count("sound") == notes.count("broken") == 4
    assert "pass broken failed" in caplog.text


def test_a_database_that_is_away_is_asked_less_and_less_often() -> None:
    notes: list[str] = []

    def away() -> None:
        raise Unavailable("gone")

    _run(20, [_noting("p", 0.05, notes, away)])
    assert 4 <= len(notes) <= 8


def test_a_full_batch_is_followed_at_once() -> None:
    """And the other passes have their turn."""
    notes: list[str] = []
    reports = iter([Full(), Full(), None])
    _run(1, [_noting("once", 100, notes, lambda: next(reports, None))])
    assert notes.count("once") == 3


def test_whoever_leads_by_another_session_begins_anew() -> None:
    """In between, another may have led; a pass that fails for a reason of its own is no such thing."""
    taken: list[str] = []
    clock = HandClock(9.5)
    duties = SomeDuties()

    def sick() -> None:
        raise Unavailable("for a moment")

    def other_session() -> None:
        if clock.now > 2:
            duties.session = 2

    begin = {name: partial(taken.append, name) for name in ("sick", "sound")}
    passes = [_noting("sick", 1, [], sick), _noting("sound", 1, [], other_session)]
    Loop(passes, duties, clock, lambda: clock.now, taken=begin).run()
    assert sorted(taken) == ["sick", "sick", "sound", "sound"]


def test_a_long_pass_with_more_to_do_does_not_rest() -> None:
    """BUSY is for what comes again and again, not for what is behind."""
    notes: list[str] = []
    clock = HandClock(1000)
    reports = iter([Full(), Full(), None])

    def long() -> Any:
        clock.now += 10
        return next(reports, None)

    def note() -> Any:
        notes.append(f"{clock.now:g}")
        return long()

    Loop([Pass("long", note, timedelta(seconds=500))], SomeDuties(), clock, lambda: clock.now).run()
    assert notes[:3] == ["0", "10", "20"]
