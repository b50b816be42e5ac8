"""Arguments as they are written and read: any JSON, with promises and failures anywhere in it, and objects that only
look like them."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.errors import BadRequest
from processes import Failure, Flow, Promise, arguments, graph
from processes.arguments import Encoder, filled, plainly, renumbered, written
from processes.flow import Planned
from processes.loading import Input
from tests.kit.strategies import scalars, text

ANY_TIME = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
MARKS = st.sampled_from(["$value", "$promise", "$failure", "$plain", "$", "$x"])
TASKS = 6
NUMBERS = st.integers(-3, TASKS)


class Ref:
    """In the place of a promise: `wait`, its value is wanted."""

    def __init__(self, number: int, *, wait: bool) -> None:
        self.number, self.wait = number, wait


failures = st.builds(Failure, text, text)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = text | MARKS
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(keys, inner, max_size=3)
            | st.dictionaries(MARKS, inner, min_size=1, max_size=1)
        ),
        max_leaves=10,
    )


plain_values = nested(scalars | failures | st.integers(1, TASKS))
any_arguments = nested(scalars | failures | st.builds(Ref, NUMBERS, wait=st.booleans()))


def mapped(value: Any, of: Any) -> Any:
    match value:
        case Ref():
            return of(value)
        case dict():
            return {key: mapped(each, of) for key, each in value.items()}
        case list():
            return [mapped(each, of) for each in value]
        case _:
            return value


def refs(value: Any) -> list[Ref]:
    found: list[Ref] = []
    mapped(value, found.append)
    return found


@ANY_TIME
@given(any_arguments, st.lists(plain_values, min_size=20, max_size=20), st.booleans())
def test_a_function_gets_what_was_given_with_values_in_the_places_of_promises(
    value: Any,
    values: list[Any],
    keyword: bool,  # noqa: FBT001
) -> None:
    # P1
    # It has made four calls.
    asking = Flow(1, planned=[Planned("a", "{}")] * 4)
    asked = mapped(value, lambda ref: _promised(asking, ref))
    encoder = Encoder(asking._number_of)
    written_down = encoder.call("x", () if keyword else (asked,), {"it": asked} if keyword else {})
    assert encoder.uses == {ref.number for ref in refs(value) if ref.wait}
    assert encoder.passes == any(not ref.wait for ref in refs(value))

    first = TASKS + 1
    stored = renumbered(written_down, lambda number: graph.numbered(number, first))
    numbers = {graph.numbered(ref.number, first) for ref in refs(value) if ref.wait}
    results = {number: json.loads(written("y", values[number])) for number in numbers}
    flow, args, kwargs = Input("x", stored, datetime.now(UTC), None, "{}", results).decide(1)
    got = kwargs["it"] if keyword else args[0]

    def wanted(ref: Ref) -> Any:
        number = graph.numbered(ref.number, first)
        return values[number] if ref.wait else ("promise", number)

    assert _shown(flow, got) == mapped(value, wanted)
    json.loads(written_down)


def _promised(flow: Flow, ref: Ref) -> Any:
    promise: Promise[Any] = Promise(flow, ref.number)
    return promise if ref.wait else flow.no_wait(promise)


def _shown(flow: Flow, value: Any) -> Any:
    match value:
        case Promise():
            assert value._flow is flow
            return ("promise", value._number)
        case dict():
            return {key: _shown(flow, each) for key, each in value.items()}
        case list():
            return [_shown(flow, each) for each in value]
        case _:
            return value


@ANY_TIME
@given(plain_values)
def test_a_value_is_read_as_it_was_returned(value: Any) -> None:
    before = copy.deepcopy(value)
    assert plainly(json.loads(written("x", value))) == value == before


@ANY_TIME
@given(plain_values)
def test_a_value_that_holds_a_promise_is_refused_wherever_it_is(value: Any) -> None:
    flow = Flow(1)
    promise = flow.promise(3)
    for held in (promise, flow.no_wait(promise)):
        with pytest.raises(BadRequest, match="return the promise itself"):
            written("x", [value, {"in": [held]}])


@ANY_TIME
@given(nested(scalars), nested(scalars | st.integers(1, TASKS)))
def test_who_is_no_python_program_gets_the_values_and_never_one_that_was_not_asked_for(value: Any, result: Any) -> None:
    # P10: an object that looks like a promise names no task.
    flow = Flow(1)
    stored = json.loads(Encoder(flow._number_of).call("x", (value, flow.promise(2)), {}))
    results: Mapping[int, Any] = {2: json.loads(written("y", result))}
    looks_alike, value_of_2 = filled(stored["args"], results)
    assert looks_alike == stored["args"][0]
    assert plainly(looks_alike) == value
    marked = isinstance(result, dict) and len(result) == 1 and next(iter(result)).startswith("$")
    assert value_of_2 == (results[2]["$plain"] if marked else results[2])


def test_lists_and_objects_go_only_so_deep() -> None:
    def deep(levels: int) -> Any:
        value: Any = 1
        for level in range(levels):
            value = [value] if level % 2 else {"in": value}
        return value

    most = arguments.DEPTH_MOST
    assert plainly(json.loads(written("x", deep(most)))) == deep(most)
    for value in (deep(most + 1), deep(5000)):
        with pytest.raises(BadRequest, match="deep"):
            written("x", value)
    itself: list[Any] = []
    itself.append(itself)
    with pytest.raises(BadRequest, match="contain themselves"):
        written("x", itself)
