"""How arguments are written; any of them: tests/property/test_process_arguments.py."""

from __future__ import annotations

import enum
import json
from typing import Any

import pytest

from app.errors import BadRequest, NotJson, TooLarge
from processes import Failure, Flow
from processes.arguments import Encoder, filled, plainly, renumbered, written


class Key(str, enum.Enum):  # noqa: UP042 - whose text as a key is not what str() says
    VALUE = "$value"


def encoded(flow: Flow, *args: Any) -> Any:
    return json.loads(Encoder(flow._number_of).call("x", args, {}))["args"]


def test_promises_failures_and_what_looks_like_them() -> None:
    flow = Flow(1)
    promise = flow.promise(7)
    assert encoded(flow, promise, [flow.no_wait(promise)], {"a": Failure("Gone", "away")}, (1, 2)) == [
        {"$value": 7},
        [{"$promise": 7}],
        {"a": {"$failure": {"type": "Gone", "message": "away"}}},
        [1, 2],
    ]
    assert encoded(flow, {"$value": 7}, {"$value": 7, "b": 1}, {"$": promise}, {Key.VALUE: 7}) == [
        {"$plain": {"$value": 7}},
        {"$value": 7, "b": 1},
        {"$plain": {"$": {"$value": 7}}},
        {"$plain": {"$value": 7}},
    ]


def test_numbers_are_given_to_promises_and_to_nothing_else() -> None:
    text = json.dumps([{"$value": 0}, {"$promise": -1}, {"$plain": {"$value": 0}}, {"$plain": {"$": {"$value": 0}}}, 0])
    assert json.loads(renumbered(text, lambda number: 10 - number)) == [
        {"$value": 10},
        {"$promise": 11},
        {"$plain": {"$value": 0}},
        {"$plain": {"$": {"$value": 10}}},
        0,
    ]
    assert renumbered('["as it is"]', lambda number: number) == '["as it is"]'


def test_who_is_no_python_program_gets_no_value_for_what_only_looks_like_a_promise() -> None:
    # P10
    stored = [{"$plain": {"$value": 2}}, {"$value": 2}, {"$plain": {"$": {"$value": 2}}}]
    assert filled(stored, {2: "secret"}) == [{"$plain": {"$value": 2}}, "secret", {"$plain": {"$": "secret"}}]
    assert filled([{"$plain": {"$value": 2}}], {}) == [{"$plain": {"$value": 2}}]
    failed = {"$failure": {"type": "Gone", "message": "away"}}
    assert filled([{"$value": 2}], {2: failed}) == [failed]


def test_a_value_is_written_within_a_limit() -> None:
    assert written("x", {"a": (1, None)}) == '{"a":[1,null]}'
    assert plainly(json.loads(written("x", {"$plain": {"$plain": 1}}))) == {"$plain": {"$plain": 1}}
    with pytest.raises(TooLarge, match="the value of x"):
        written("x", "é" * 600_000)
    for wrong in (float("nan"), b"x", {1}, "\ud800", {(1,): 2}):
        with pytest.raises(NotJson):
            written("x", wrong)


def test_what_contains_itself_is_refused() -> None:
    itself: dict[str, Any] = {}
    itself["in"] = [itself]
    with pytest.raises(BadRequest, match="the arguments of x contain themselves"):
        encoded(Flow(1), itself)
    with pytest.raises(BadRequest, match="the value of x contain themselves"):
        written("x", itself)
