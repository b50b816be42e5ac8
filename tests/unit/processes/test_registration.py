"""`@actor` and `@decider`, checked when the module is imported."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from app.errors import BadRequest
from app.registry import registry
from processes import Flow, Retry, actor, decider
from processes.definition import decider_named, declared, definition_of
from processes.model import queue_of


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = dict(declared)
    monkeypatch.setattr(registry, "functions", dict(registry.functions))
    monkeypatch.setattr(registry, "_listeners", [])
    yield
    declared.clear()
    declared.update(before)


def charge(order: str, amount: int = 1) -> str:
    return f"{order} {amount}"


def fulfil(flow: Flow, order: str) -> str:
    return order


def no_flow() -> None:
    pass


def named_flow(*, flow: Flow) -> None:
    pass


def flow_last(order: str, flow: Flow) -> str:
    return order


async def later(order: str) -> str:
    return order


def test_a_function_stays_what_it_is() -> None:
    # P1
    declare: Any = actor
    made = declare(charge)
    assert made is charge
    assert charge("o-1") == "o-1 1"
    found = definition_of(charge)
    assert (found.name, found.decider, found.outside) == ("charge", False, False)
    assert found.task == f"{__name__}.charge"
    assert registry.functions[found.task].queue == queue_of("charge") == "actor.charge"


def test_defaults_are_those_of_the_rules() -> None:
    # P6, P7
    found = definition_of(actor(charge))
    assert (found.accept_first, found.restart_after_work_timeout, found.max_restarts) == (True, True, 10)
    assert (found.work_timeout, found.task_timeout) == (timedelta(minutes=1), None)
    assert not found.force_finish_after_task_timeout
    assert (found.retry, found.fail_types) == (Retry(max_attempts=5), ())
    process = definition_of(decider(fulfil))
    assert (process.process_timeout, process.idle_process_timeout) == (None, timedelta(minutes=10))
    assert (process.when_inconsistent, process.max_restarts) == ("break", 10)
    assert decider_named("fulfil") is process
    assert decider_named("charge") is None


def test_a_decider_is_called_without_its_flow() -> None:
    assert str(definition_of(decider(fulfil)).signature) == "(order: 'str') -> 'str'"
    for wrong in (no_flow, named_flow, flow_last):
        with pytest.raises(BadRequest, match="is given its flow first"):
            decider(wrong)


def test_a_name_is_that_of_one_function() -> None:
    actor(charge)
    actor(name="charge")(charge)
    with pytest.raises(BadRequest, match=r"are both named 'charge'.*give one of them another"):
        decider(name="charge")(fulfil)
    decider(name="other")(fulfil)
    assert definition_of(fulfil).name == "other"


def test_what_nobody_could_find_or_call_is_refused() -> None:
    def inner() -> None:
        pass

    declare: Any = actor
    for wrong, told in ((inner, "lies within a function"), (len, "is no function"), (lambda: 1, "has no name")):
        with pytest.raises(BadRequest, match=told):
            declare(wrong)
    with pytest.raises(BadRequest, match="options are named"):
        declare("5min")
    with pytest.raises(BadRequest):
        declare(later)


@pytest.mark.parametrize(
    ("declare", "option", "value"),
    [
        (actor, "accept_first", 1),
        (actor, "restart_after_work_timeout", "no"),
        (actor, "force_finish_after_task_timeout", None),
        (actor, "outside", "yes"),
        (actor, "work_timeout", "10ms"),
        (actor, "task_timeout", "10ms"),
        (actor, "max_restarts", -1),
        (actor, "retry", 5),
        (actor, "fail_types", [5]),
        (actor, "name", "a,b"),
        (actor, "max_parallel", 0),
        (actor, "rate_limit", "fast"),
        (decider, "process_timeout", "1ms"),
        (decider, "idle_process_timeout", "1ms"),
        (decider, "when_inconsistent", "ignore"),
        (decider, "retention", "-1s"),
        (decider, "work_timeout", None),
        (decider, "retry", "often"),
    ],
)
def test_options_that_cannot_be_are_refused(declare: Any, option: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=option):
        declare(**{option: value})(charge if declare is actor else fulfil)
    assert "charge" not in declared
    assert "fulfil" not in declared


def test_what_is_not_declared_is_told() -> None:
    for wrong in (no_flow, len, 5, None):
        with pytest.raises(BadRequest, match="is neither an actor nor a decider"):
            definition_of(wrong)
