"""What a decider may ask for, and what is refused when it asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.errors import BadRequest, NotJson, TooLarge
from processes import Failure, Flow, Promise, Retry, actor, decider, flow
from processes.promise import NoWait


@actor(name="flow.act")
def act(one: Any = None, *, two: Any = None) -> int:
    return 1


@decider(name="flow.plan")
def plan(flow: Flow, one: Any, two: Any = None) -> Any:
    return one


def asked(given: Flow) -> dict[str, Any]:
    """The arguments of the last call."""
    found: dict[str, Any] = json.loads(given.planned[-1].arguments)
    return found


def test_a_call_is_planned_and_not_made() -> None:
    given = Flow(1)
    first = given.call(act, 1, kwargs={"two": [2]})
    second = given.call(plan, first, given.no_wait(first), after=[first])
    assert asked(given) == {"args": [{"$value": 0}, {"$promise": 0}], "kwargs": {}}
    assert [(each.actor, each.uses, each.after) for each in given.planned] == [
        ("flow.act", (), ()),
        ("flow.plan", (0,), (0,)),
    ]
    assert given.planned[1].waits_for == (0,)
    assert (repr(first), repr(second), repr(given.promise(7))) == (
        "<promise of call 1>",
        "<promise of call 2>",
        "<promise of task 7>",
    )


def test_an_argument_is_as_it_was_at_the_call() -> None:
    given, things = Flow(1), [1]
    given.call(act, things)
    things.append(2)
    assert asked(given)["args"] == [[1]]


def test_a_promise_is_wanted_once_however_often_it_is_named() -> None:
    given = Flow(1)
    first, second = given.call(act), given.call(act)
    given.call(act, [second, first, {"in": second}], after=[first, first, given.promise(3)])
    assert (given.planned[-1].uses, given.planned[-1].after) == ((-1, 0), (0, 3))
    assert given.planned[-1].waits_for == (-1, 0, 3)


def test_after_is_one_promise_or_any_number_of_them() -> None:
    given = Flow(1)
    first, second = given.call(act), given.call(act)

    def several() -> Iterator[Promise[int]]:
        yield first
        yield second

    given.call(act, after=several())
    given.call(act, after=first)
    assert [each.after for each in given.planned[2:]] == [(0, -1), (0,)]
    wrong: list[Any] = [None, 5, "ab", [1], [given.no_wait(first)], [[first]]]
    for each in wrong:
        with pytest.raises(BadRequest, match="is no promise"):
            given.call(act, after=each)


def test_what_does_not_fit_the_signature_is_refused() -> None:
    given = Flow(1)
    with pytest.raises(BadRequest, match=r"flow\.act\(one: .*\) cannot be called so: too many positional"):
        given.call(act, 1, 2)
    with pytest.raises(BadRequest, match=r"flow\.plan\(one.*\) cannot be called so: missing a required argument"):
        given.call(plan)
    with pytest.raises(BadRequest, match="unexpected keyword argument 'three'"):
        given.call(act, kwargs={"three": 3})
    for wrong in (5, [("two", 2)], {1: 1}):
        with pytest.raises(BadRequest, match="kwargs="):
            given.call(act, kwargs=wrong)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="neither an actor nor a decider"):
        given.call(len, [])
    assert not given.planned


def test_an_actor_needs_the_value() -> None:
    given = Flow(1)
    first = given.call(act)
    deep: list[Any] = [given.no_wait(first), [given.no_wait(first)], {"in": (given.no_wait(first),)}]
    for each in deep:
        with pytest.raises(BadRequest, match=r"is an actor, which needs the value"):
            given.call(act, each)
        with pytest.raises(BadRequest, match=r"is an actor, which needs the value"):
            given.call(act, kwargs={"two": each})
        given.call(plan, each)
    with pytest.raises(BadRequest, match="5 is no promise"):
        given.no_wait(5)  # type: ignore[arg-type]


def test_promises_of_another_run_are_refused() -> None:
    given, other = Flow(1), Flow(1)
    foreign = other.call(act)
    attempts: list[Any] = [
        lambda: given.call(act, foreign),
        lambda: given.call(plan, [NoWait(foreign)]),
        lambda: given.call(act, after=[foreign]),
        lambda: given.no_wait(foreign),
        lambda: given.number_of_value(foreign),
    ]
    for attempt in attempts:
        with pytest.raises(BadRequest, match="belongs to another process, or to another run"):
            attempt()


@pytest.mark.parametrize("number", [0, -1, True, "1", 1.0, None])
def test_a_promise_is_of_a_task(number: Any) -> None:
    with pytest.raises(BadRequest, match="tasks are numbered from 1"):
        Flow(1).promise(number)


def test_a_promise_is_no_value() -> None:
    promise = Flow(1).call(act)
    with pytest.raises(TypeError, match="is no value yet"):
        bool(promise)
    with pytest.raises(TypeError, match="is no value yet"):
        list(promise)


def test_what_is_returned_is_a_promise_or_a_value() -> None:
    given = Flow(1)
    first, second = given.call(act), given.call(act)
    returned: list[Any] = [first, second, given.no_wait(second), given.promise(4), None, 5, [first]]
    assert [given.number_of_value(each) for each in returned] == [0, -1, -1, 4, None, None, None]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"bytes", {1, 2}, object(), "\ud800", {(1, 2): 3}])
def test_what_json_cannot_hold_is_refused_at_the_call(value: Any) -> None:
    given = Flow(1)
    with pytest.raises(NotJson):
        given.call(act, value)
    with pytest.raises(NotJson):
        given.call(act, {given.call(act): 1})
    assert len(given.planned) == 1


def test_a_failure_can_be_passed_on() -> None:
    given = Flow(1)
    given.call(act, [Failure("Gone", "away")])
    assert asked(given)["args"] == [[{"$failure": {"type": "Gone", "message": "away"}}]]


def test_a_decision_asks_for_so_much_and_not_more(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Flow(1)
    with pytest.raises(TooLarge, match=r"the arguments of flow\.act"):
        given.call(act, "x" * 1024 * 1024)
    monkeypatch.setattr(flow, "CALLS_MOST", 2)
    monkeypatch.setattr(flow, "BYTES_MOST", 1000)
    given.call(act)
    with pytest.raises(TooLarge, match="let it call deciders"):
        given.call(act, "x" * 1000)
    given = Flow(1)
    given.call(act)
    given.call(act)
    with pytest.raises(TooLarge, match="more than 2 calls"):
        given.call(act)
    assert len(given.planned) == 2


def test_when_and_how_it_is_called() -> None:
    # P9
    given, moment = Flow(1), datetime(2030, 1, 1, tzinfo=UTC)
    given.call(act, delay="5min", at=moment, retry=Retry(max_attempts=2), fail_types=[ValueError, "Gone"])
    planned = given.planned[-1]
    assert (planned.delay, planned.not_before) == (timedelta(minutes=5), moment)
    assert planned.policy == {"retry": Retry(max_attempts=2).words(), "fail_types": ["ValueError", "Gone"]}
    given.call(act, fail_types=[])
    assert given.planned[-1].policy == {"fail_types": []}
    given.call(act)
    assert given.planned[-1].policy is None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("delay", -1),
        ("delay", "soon"),
        ("delay", "4000d"),
        ("at", datetime(2030, 1, 1)),  # noqa: DTZ001
        ("at", "2030-01-01"),
        ("at", datetime(9999, 1, 1, tzinfo=UTC)),
        ("retry", 3),
        ("fail_types", 5),
        ("fail_types", [int]),
        ("fail_types", [""]),
    ],
)
def test_wrong_options_are_refused(option: str, value: Any) -> None:
    given = Flow(1)
    with pytest.raises(BadRequest, match=option):
        given.call(act, **{option: value})
    assert not given.planned
