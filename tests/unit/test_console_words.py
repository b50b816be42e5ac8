"""What is read from forms and addresses, and how values are shown on pages."""

from __future__ import annotations

import doctest
from datetime import UTC, datetime, timedelta

import pytest

from app.console.web import words
from app.console.web.fields import Fields, address
from app.console.web.memory import SHARE, Remembered, RememberedBy
from app.console.web.templates import without_times
from app.errors import BadRequest, TooLarge
from processes import telling
from processes.checks import checked_settings

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


def test_examples_hold() -> None:
    for module in (words, telling):
        found = doctest.testmod(module, extraglobs={"datetime": datetime, "timedelta": timedelta, "UTC": UTC})
        assert found.attempted > 0
        assert found.failed == 0


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "now"),
        (0.9, "now"),
        (1, "1s ago"),
        (59.9, "59s ago"),
        (60, "1min ago"),
        (3661, "1h 1min ago"),
        (-5, "in 5s"),
    ],
)
def test_distances(seconds: float, told: str) -> None:
    assert words.distance(NOW - timedelta(seconds=seconds), NOW) == told


def test_a_moment_says_exactly_when() -> None:
    found = words.ago(NOW - timedelta(minutes=3), NOW)
    assert 'title="2026-07-01 11:57:00 UTC"' in found
    assert ">3min ago<" in found
    assert without_times(f"<p>{found}</p>") == without_times(f"<p>{words.ago(NOW - timedelta(minutes=3))}</p>")


def test_numbers_states_and_spans() -> None:
    assert words.number(1234567) == "1\u202f234\u202f567"
    assert (words.bounded(99_999), words.bounded(100_000)) == ("99\u202f999", "100\u202f000+")
    assert (words.number(0), words.number(None)) == ("0", "–")
    assert [words.tone(each) for each in ("BROKEN", "parked", "WORK", "done", "PAUSED", "odd")] == [
        *("bad", "bad", "busy", "ok", "warn", "wait")
    ]
    assert [words.duration(timedelta(seconds=each)) for each in (0.004, 0.25, 90)] == ["4ms", "0.2s", "1min 30s"]


def test_fields() -> None:
    found = Fields.read(b"a=+x+&b=7&b=8&c=&d=%C3%B6", 100)
    assert (found.text("a"), found.text("c"), found.text("none"), found.text("d")) == ("x", None, None, "ö")
    assert found.texts("b") == ["7", "8"]
    assert found.number("b") == 7
    assert (found.has("c"), found.flag("c"), found.flag("a")) == (True, False, True)
    assert found.changed({"a": None, "b": 9}) == "d=%C3%B6&b=9"
    assert address("/x", a="b&c", d=None) == "/x?a=b%26c"


@pytest.mark.parametrize("text", [b"a=%ff", b"a=%00", b"&".join([b"a=b"] * 201), b"\xff"])
def test_what_is_no_form(text: bytes) -> None:
    with pytest.raises(BadRequest):
        Fields.read(text, 10_000)


def test_limits_of_fields() -> None:
    with pytest.raises(TooLarge):
        Fields.read(b"a" * 101, 100)
    with pytest.raises(TooLarge):
        Fields((("a", "x" * 3000),)).text("a")
    for value in ("x", "-1", "0", "9" * 30, "1.5", "٣"):
        with pytest.raises(BadRequest):
            Fields((("a", value),)).number("a")
    with pytest.raises(BadRequest, match="none of"):
        Fields((("a", "z"),)).choice("a", ["x", "y"])
    with pytest.raises(BadRequest, match="a is needed"):
        Fields().needed("a")


def test_a_setting_can_be_sent_back_as_it_is_typed() -> None:
    for value in (timedelta(seconds=90), timedelta(days=2), timedelta(milliseconds=250)):
        assert checked_settings("a", {"work_timeout": telling.typed(value)}, decider=False) == {"work_timeout": value}
    assert checked_settings("a", {"task_timeout": telling.typed(None)}, decider=False) == {"task_timeout": None}
    assert checked_settings("a", {"fail_types": telling.typed([])}, decider=False) == {"fail_types": []}
    assert checked_settings("a", {"repeatable": telling.typed(value=False)}, decider=False) == {"repeatable": False}


def test_what_is_dear_is_read_less_often() -> None:
    now, reads = 0.0, 0

    def read() -> int:
        nonlocal now, reads
        reads += 1
        now += 2.0
        return reads

    found = Remembered(read, 1.0, lambda: now)
    assert found.get() == found.get() == 1
    now += 2.0 * SHARE - 0.1
    assert found.get() == 1
    now += 0.1
    assert found.get() == 2
    found.forget()
    assert found.get() == 3


def test_each_key_is_remembered_by_itself_and_the_oldest_forgotten() -> None:
    reads: list[int] = []

    def read(key: int) -> int:
        reads.append(key)
        return key

    found = RememberedBy(read, 60.0, lambda: 0.0)
    for key in (1, 2, 1):
        assert found.get(key) == key
    assert reads == [1, 2]
    for key in range(10, 310):
        found.get(key)
    found.get(1)
    assert reads[-1] == 1
