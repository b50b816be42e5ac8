"""What is given to a task that is restarted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.errors import BadRequest
from processes.graph import Node
from processes.overriding import UNCHANGED, Called, Instead, called, check, instead
from processes.restarting import Plan, for_a_copy
from processes.states import TaskState

BEFORE = '{"args":[1,{"$value":7}],"kwargs":{"a":{"$promise":8}}}'


def test_what_is_not_given_stays_as_it_was() -> None:
    assert not instead().arguments
    assert instead(result=None) == Instead(result="null")
    assert instead(result={"$value": 7}).result == '{"$plain":{"$value":7}}'
    assert called("x", BEFORE, Instead()) == Called(BEFORE, frozenset({7}), frozenset({8}))
    assert called("x", BEFORE, instead(args=[])).text == '{"args":[],"kwargs":{"a":{"$promise":8}}}'
    found = called("x", BEFORE, instead(kwargs={"b": [{"$value": 9}, {"$plain": {"$value": 1}}]}))
    assert (found.uses, found.names) == (frozenset({7, 9}), frozenset())
    assert json.loads(found.text)["kwargs"] == {"b": [{"$value": 9}, {"$plain": {"$value": 1}}]}


@pytest.mark.parametrize(
    "value",
    [
        {"$value": 0},
        {"$value": "7"},
        {"$value": True},
        {"$promise": None},
        {"$other": {}},
        {"$failure": {}},
        {"$plain": 1},
    ],
)
def test_marks_that_are_none_are_refused(value: Any) -> None:
    with pytest.raises(BadRequest, match="an object of your own is written"):
        called("x", BEFORE, instead(args=[[value]]))
    assert called("x", BEFORE, instead(args=[{"$plain": value}, value | {"more": 1}])).uses == frozenset()


def test_what_is_too_deep_is_refused() -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    with pytest.raises(BadRequest, match="more than 200 deep"):
        called("x", BEFORE, instead(args=[deep]))


def test_a_task_is_given_values_for_which_it_waits() -> None:
    wanted = Called("", frozenset({2}), frozenset({3}))
    check("x", wanted, waits_for={2}, there={1, 2, 3}, decider=True)
    for words in ({"waits_for": {1}}, {"there": {1, 2}}, {"decider": False}):
        given: dict[str, Any] = {"waits_for": {2}, "there": {1, 2, 3}, "decider": True} | words
        with pytest.raises(BadRequest):
            check("x", wanted, **given)
    assert repr(UNCHANGED) == "UNCHANGED"


def test_a_copy_does_what_the_original_has_in_work() -> None:
    states = (
        TaskState.READY,
        TaskState.FINISHED,
        TaskState.BROKEN,
        TaskState.PENDING,
        TaskState.READY,
        TaskState.FOLLOWS,
    )
    nodes = {number: Node(state) for number, state in enumerate(states, 1)}
    planned = Plan(frozenset({2}), frozenset({6}), frozenset({5}))
    assert for_a_copy(planned, nodes) == Plan(frozenset({1, 2}), frozenset({6}), frozenset({5}))
