"""Triggers as JSON, and their shapes."""

from __future__ import annotations

from typing import Any as Anything

import pytest

from app.errors import BadRequest
from triggers.shape import from_shape, shape
from triggers.trigger import All, Any, ChunkDelta, ChunkRefDelay, Delta, Trigger, from_json

DELTA = {"format": 1, "kind": "delta", "entity": "a", "parameter": "p", "min_delta_us": 172_800_000_000}


@pytest.mark.parametrize(
    ("trigger", "form"),
    [
        # What is stored must be readable for ever: a change here needs a new format.
        (Delta("a", "p", "2d"), DELTA),
        (
            ChunkRefDelay("a", "p", "b", "q", "1hour", 2, tz="Asia/Tokyo"),
            {
                "format": 1,
                "kind": "chunk_ref_delay",
                "entity": "a",
                "parameter": "p",
                "ref_entity": "b",
                "ref_parameter": "q",
                "scale": "hour",
                "delta": 2,
                "tz": "Asia/Tokyo",
            },
        ),
        (
            Any(ChunkDelta("a", "p", "day")),
            {
                "format": 1,
                "kind": "any",
                "leaves": [
                    {"kind": "chunk_delta", "entity": "a", "parameter": "p", "scale": "day", "delta": None, "tz": "UTC"}
                ],
            },
        ),
    ],
)
def test_the_stored_form(trigger: Trigger, form: dict[str, Anything]) -> None:
    assert trigger.to_json() == form
    assert from_json(form) == trigger


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "written as a JSON object"),
        ({}, "has no 'format'"),
        (DELTA | {"format": 2}, "format 2, this release reads 1"),
        (DELTA | {"kind": "predicate"}, "'predicate' is no kind of CTL trigger: write one of 'delta', 'delay'"),
        (DELTA | {"kind": ["delta"]}, "no kind of trigger"),
        (DELTA | {"unless": 1}, "fields that this release does not know: 'unless'"),
        (DELTA | {"min_delta_us": "2d"}, "whole number of microseconds"),
        (DELTA | {"min_delta_us": 10**30}, "longer than a duration can be"),
        ({"format": 1, "kind": "delta"}, "has no 'entity'"),
        ({"format": 1, "kind": "all", "leaves": [], "unless": 1}, "fields that this release does not know: 'unless'"),
        ({"format": 1, "kind": "all", "leaves": "x"}, "write a list of triggers"),
        ({"format": 1, "kind": "all", "leaves": []}, "is empty"),
        ({"format": 1, "kind": "all", "leaves": [{"kind": "any", "leaves": []}]}, "all and any do not nest"),
    ],
)
def test_what_is_not_understood_is_refused(data: dict[str, Anything], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        from_json(data)


def test_a_shape_forgets_names_only() -> None:
    assert shape(Delta("a", "p", "2d")) == shape(Delta("b", "q", "48h")) != shape(Delta("a", "p", "3d"))
    assert shape(All(Delta("a", "p", "2d"))) != shape(Any(Delta("a", "p", "2d")))
    assert from_shape(shape(Delta("a", "p", "2d"))) is from_shape(shape(Delta("b", "q", "2d")))


def test_a_shape_wants_values_for_each_leaf() -> None:
    both = from_shape(shape(All(Delta("a", "p", "2d"), Delta("b", "p", "2d"))))
    assert both.holds(0, [(1, None, None), (1, None, None)])
    with pytest.raises(ValueError, match="shorter"):
        both.holds(0, [(1, None, None)])
