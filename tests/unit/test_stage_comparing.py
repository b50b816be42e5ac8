"""What is kept of values that change in place, and when two of them are the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.comparing import kept, same
from tests.kit import strategies


class Vector:
    """Compares element by element, as those of numpy do."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def __eq__(self, other: object) -> Any:
        return Compared([own == its for own, its in zip(self.numbers, other.numbers, strict=True)])  # type: ignore[attr-defined]

    __hash__ = None  # type: ignore[assignment]


class Compared(list[bool]):
    def all(self) -> bool:
        return all(self)

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


class Told(dict[str, Any]):
    """As one that tells somebody when it changes: it has no copy."""

    def __deepcopy__(self, memo: object) -> Any:
        raise AssertionError


@given(strategies.json_values)
def test_what_was_kept_is_the_same(value: Any) -> None:
    copy = kept(value)
    assert copy == value
    assert same(copy, value)


def test_true_is_not_one() -> None:
    assert same(True, 1) is same(0, False) is False


def test_what_was_kept_stays_at_every_depth() -> None:
    value = [1, [2, {"three": [4]}]]
    copy = kept(value)
    value[1][1]["three"].append(5)  # type: ignore[index]
    value[1].append(6)  # type: ignore[attr-defined]
    assert copy == [1, [2, {"three": [4]}]]


@given(st.dictionaries(strategies.text, strategies.json_values, min_size=1))
def test_what_was_kept_stays_when_the_value_changes(value: dict[str, Any]) -> None:
    before, copy = repr(value), kept(value)
    for inner in [value, *value.values()]:
        if isinstance(inner, dict):
            inner["another"] = object()
        elif isinstance(inner, list):
            inner.append(object())
    assert repr(copy) == before
    assert not same(copy, value)


@pytest.mark.parametrize(
    ("old", "new", "equal"),
    [
        ([1, "a"], (1, "a"), True),
        ([1], [1.0], True),
        ([1], [True], False),
        ([0], [False], False),
        ({"a": 1}, {"a": 1, "b": 1}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, False),
        ({}, [], False),
        (Told(a=[1]), {"a": [1]}, True),
        (Vector(1, 2), Vector(1, 2), True),
        (Vector(1, 2), Vector(1, 3), False),
    ],
)
def test_same_is_what_the_database_cannot_tell_apart(old: Any, new: Any, equal: bool) -> None:  # noqa: FBT001
    assert same(kept(old), new) is equal
