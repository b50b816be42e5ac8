"""Which stages want an entity after a change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import Int64Value

from app.alarm import OutOfTime
from stages import Kind
from stages.asking import Wish, ask
from stages.moments import FARTHEST, moment
from stages.state import Stored, pack
from tests.kit.stages_memory import Parcel, declare, nothing_declared, parcels

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=2)


@pytest.mark.parametrize("far", [FARTHEST, -FARTHEST])
def test_a_moment_is_within_a_hundred_years(far: timedelta) -> None:
    assert moment("timer", far, NOW) == moment("timer", NOW + far, NOW) == NOW + far
    with pytest.raises(ValueError, match=r"timer .* more than 100 years away"):
        moment("timer", far + far / 10**9, NOW)


@pytest.mark.parametrize("value", [60, "1min", None])
def test_a_moment_is_a_time_or_a_span(value: object) -> None:
    with pytest.raises(ValueError, match=r"timer .* must be a datetime with a time zone, or a timedelta from now"):
        moment("timer", value, NOW)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with nothing_declared():
        yield


@pytest.fixture
def kind() -> Kind:
    return parcels()


def asked(kind: Kind, wants: Any, there: Stored | None = None, **options: Any) -> list[Wish]:
    states = {} if there is None else {"weigh": there}
    return ask([declare(kind, wants=wants, **options)], Parcel("p-1"), states, None, NOW)


@pytest.mark.parametrize(
    ("answer", "at"),
    [
        (True, NOW),
        (LATER, LATER),
        (LATER.astimezone(timezone(timedelta(hours=5))), LATER),
        (timedelta(hours=2), LATER),
        (timedelta(0), NOW),
        (NOW - timedelta(days=400), NOW),
        (-timedelta(hours=1), NOW),
    ],
)
def test_it_is_wanted_now_or_at_a_time_but_never_earlier_than_now(kind: Kind, answer: Any, at: datetime) -> None:
    # S4
    assert asked(kind, answer) == [Wish("weigh", at, None)]


def test_no_means_no(kind: Kind) -> None:
    # S4
    assert asked(kind, False) == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "should_process returned None: return True, False, a datetime with a time zone, or a timedelta"),
        (1, "should_process returned 1: return True, False"),
        ("2h", "should_process returned '2h': return True, False"),
        (LATER.replace(tzinfo=None), "should_process: the answer 2026-07-01T14:00:00 has no time zone: give one"),
        (timedelta.max, "lies more than 100 years away"),
        (
            datetime.max.replace(tzinfo=timezone(-timedelta(hours=9))),
            "9999-12-31T23:59:59.999999-09:00 lies more",
        ),
        (timedelta(days=40_000), "40000d lies more than 100 years away"),
    ],
)
def test_what_is_no_answer_is_a_yes(kind: Kind, answer: Any, said: str) -> None:
    # S4
    (wish,) = asked(kind, answer)
    assert (wish.stage, wish.at) == ("weigh", NOW)
    assert said in str(wish.failure)


def _fails(_entity: Any, _state: Any) -> bool:
    raise LookupError("no price")


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError


def _fails_silently(_entity: Any, _state: Any) -> bool:
    raise Mute


@pytest.mark.parametrize(("wants", "said"), [(_fails, "LookupError: no price"), (_fails_silently, "Mute")])
def test_a_failure_is_a_yes_and_is_told(kind: Kind, wants: Callable[..., bool], said: str) -> None:
    # S4
    (wish,) = asked(kind, wants)
    assert (wish.stage, wish.at) == ("weigh", NOW)
    assert said in str(wish.failure)


def test_one_that_fails_keeps_no_other_from_being_asked(kind: Kind) -> None:
    definitions = [declare(kind, "a", wants=_fails), declare(kind, "b", wants=True), declare(kind, "c", wants=False)]
    assert [wish.stage for wish in ask(definitions, Parcel("p-1"), {}, None, NOW)] == ["a", "b"]


def test_being_stopped_is_no_failure_of_the_stage(kind: Kind) -> None:
    def stopped(_entity: Any, _state: Any) -> bool:
        raise OutOfTime

    with pytest.raises(OutOfTime):
        asked(kind, stopped)


def test_each_is_given_the_entity_and_its_own_state(kind: Kind) -> None:
    # S6
    def positive(entity: Parcel, state: Int64Value | None) -> bool:
        return entity.id == "p-1" and state is not None and state.value == 7

    counting = declare(kind, state=Int64Value)
    there = Stored(*pack(counting, "p-1", Int64Value(value=7)), 1)
    assert asked(kind, positive, there, state=Int64Value) == [Wish("weigh", NOW, None)]
    assert asked(kind, positive, state=Int64Value) == []


def test_a_state_that_cannot_be_read_is_a_yes(kind: Kind) -> None:
    (wish,) = asked(kind, False, Stored("type.googleapis.com/shop.Other", b"", 1), state=Int64Value)
    assert "what is stored is a type.googleapis.com/shop.Other" in str(wish.failure)


@pytest.mark.parametrize(
    ("fields", "stages"),
    [
        (None, ["any", "none", "weight"]),
        (frozenset({"grams"}), ["any", "weight"]),
        (frozenset({"weight"}), ["any"]),
        (frozenset({"status"}), ["any"]),
        (frozenset({"status", "grams"}), ["any", "weight"]),
    ],
)
def test_who_watches_nothing_of_what_changed_is_not_asked(
    kind: Kind, fields: frozenset[str] | None, stages: list[str]
) -> None:
    # S8
    definitions = [
        declare(kind, "any", wants=True),
        declare(kind, "none", wants=True, watches=()),
        declare(kind, "weight", wants=True, watches={"weight"}),
    ]
    assert [wish.stage for wish in ask(definitions, Parcel("p-1"), {}, fields, NOW)] == stages


def test_the_caller_may_call(kind: Kind) -> None:
    seen = []

    def call(function: Callable[..., Any], entity: Any, state: Any) -> Any:
        seen.append((entity.id, state))
        return function(entity, state)

    assert len(ask([declare(kind, wants=True)], Parcel("p-1"), {}, None, NOW, call)) == 1
    assert seen == [("p-1", None)]
