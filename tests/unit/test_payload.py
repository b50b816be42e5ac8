"""What a job may carry. Refused at the call, where the producer sees it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given

from app.errors import BadRequest, NotJson, TooLarge
from app.jobs import payload
from tests.kit import strategies


def _circular() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def _deep(levels: int = 100_000) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


class ReprRaises:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        {1, 2},
        b"bytes",
        object(),
        datetime(2026, 1, 1, tzinfo=UTC),
        Decimal("1.5"),
        {(1, 2): 3},
        "\ud800",
        {"\udfff": 1},
        10**5000,
        ReprRaises(),
        1j,
        _circular(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(NotJson, match=r"arguments of mail\.send: .* has no JSON form"):
        payload.arguments("mail.send", [value], None)
    with pytest.raises(NotJson, match=r"keyword arguments of mail\.send"):
        payload.arguments("mail.send", None, {"x": value})


def test_the_part_that_json_cannot_hold_is_told() -> None:
    with pytest.raises(NotJson, match=r"^arguments of wedding: inf has no JSON form: it is no finite number$"):
        payload.as_json("arguments of wedding", {"args": ["ann", [float("inf")]], "kwargs": {}})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("q\0", "must be text without NUL, and such as UTF-8 can write"),
        ("\ud800", "must be text without NUL, and such as UTF-8 can write"),
        (" ", "must be text that is not empty"),
        (None, "must be text that is not empty"),
    ],
)
def test_what_is_no_name_is_refused_with_its_reason(value: Any, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        payload.name("queue", value)


def test_what_is_nested_too_deep_is_refused() -> None:
    with pytest.raises(NotJson, match="has no JSON form"):
        payload.arguments("t", _deep(), None)


def test_the_message_shows_the_value_but_not_all_of_it() -> None:
    with pytest.raises(NotJson) as refused:
        payload.arguments("t", [[{"x" * 100_000}]], None)
    assert "xxx" in str(refused.value)
    assert len(str(refused.value)) < 500


@given(strategies.json_args, strategies.json_kwargs)
def test_whatever_json_holds_comes_back_to_the_letter(args: list[Any], kwargs: dict[str, Any]) -> None:
    args_text, kwargs_text = payload.arguments("t", args, kwargs)
    assert json.loads(args_text) == args
    assert json.loads(kwargs_text) == kwargs
    assert "\x00" not in args_text + kwargs_text


def test_nothing_is_empty_json() -> None:
    assert payload.arguments("t", (), {}) == payload.arguments("t", None, None) == ("[]", "{}")


@pytest.mark.parametrize("letter", ["x", "ж", "🌊"])
def test_the_limit_counts_bytes_of_both_together(letter: str) -> None:
    most = payload.PAYLOAD_LIMIT // len(letter.encode()) - 100
    args, kwargs = payload.arguments("t", [letter * (most // 2)], {"k": letter * (most // 2)})
    assert len(args.encode()) + len(kwargs.encode()) <= payload.PAYLOAD_LIMIT
    with pytest.raises(TooLarge, match=r"t take \d+ bytes of JSON, more than 1048576: store them"):
        payload.arguments("t", [letter * (most // 2)], {"k": letter * (most // 2 + 200)})


@pytest.mark.parametrize("value", [None, True, 1.0, "1", 32768, -32768, 2**80])
def test_a_wrong_priority_is_refused(value: Any) -> None:
    with pytest.raises(BadRequest, match=r"priority=.* must be a whole number from -32767 to 32767"):
        payload.rank_of(value)


def test_larger_priorities_have_smaller_ranks() -> None:
    assert [payload.rank_of(priority) for priority in (-32767, 0, 32767)] == [32767, 0, -32767]


def test_a_moment_is_a_time_or_a_span() -> None:
    at = datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert payload.moment("eta", at) == (at, None)
    assert payload.moment("eta", timedelta(hours=1)) == (None, timedelta(hours=1))
    assert payload.moment("eta", 90) == (None, timedelta(seconds=90))
    assert payload.moment("eta", None) == (None, None)


@pytest.mark.parametrize("value", [True, "1h", float("nan"), float("inf"), 1e300, [1]])
def test_anything_else_is_no_moment(value: Any) -> None:
    with pytest.raises(BadRequest, match=r"eta=.* must be a datetime with a time zone"):
        payload.moment("eta", value)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(BadRequest, match="has no time zone"):
        payload.moment("eta", datetime(2026, 5, 1))  # noqa: DTZ001


@pytest.mark.parametrize("value", ["", " ", "a\x00b", None, 5, b"x", "\ud800"])
def test_a_wrong_name_is_refused(value: Any) -> None:
    with pytest.raises(BadRequest, match=r"key=.* must be text"):
        payload.name("key", value)


def test_a_long_name_is_refused() -> None:
    assert payload.name("key", "x" * 500) == "x" * 500
    with pytest.raises(TooLarge, match="key is 501 characters long"):
        payload.name("key", "x" * 501)
