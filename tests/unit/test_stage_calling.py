"""One visit: what comes of all that `process` can return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import Int64Value, StringValue

from app.errors import BadOutcome
from stages import Loaded, Patch, Untouched, Updated
from stages.calling import Decided, process
from stages.definition import Definition
from stages.outcomes import KEEP
from stages.state import Stored, pack
from tests.kit.stages_memory import MODULE, Parcel, declare, nothing_declared, parcels

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=2)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with nothing_declared():
        yield


def loaded(definition: Definition) -> Loaded:
    return definition.kind.store.loaded(Parcel("p-1", "new", 5, version=3))


def decided(does: Any, stored: Stored | None = None, **options: Any) -> Decided:
    definition = declare(parcels(), does=does, **options)
    return process(definition, loaded(definition), stored, NOW)


def refused(does: Any, **options: Any) -> str:
    with pytest.raises(BadOutcome) as error:
        decided(does, **options)
    assert f"stage {MODULE}.weigh of parcel 'p-1': " in str(error.value), "it says where"
    return str(error.value)


def weigh(parcel: Parcel, _state: object) -> Updated:
    parcel.weight = 7
    return Updated(parcel)


def test_untouched_changes_nothing() -> None:
    # S5
    assert decided(Untouched()) == Decided(Untouched(), {}, None, KEEP, None)


def test_updated_is_what_differs_by_field() -> None:
    # S5
    found = decided(weigh)
    assert (found.changes, found.patch) == ({"grams": 7}, None)
    assert isinstance(found.outcome, Updated)


def test_a_copy_may_be_returned() -> None:
    assert decided(lambda parcel, _: Updated(replace(parcel, status="sent"))).changes == {"status": "sent"}


def test_updated_without_changes_counts_as_untouched() -> None:
    # S11
    assert decided(lambda parcel, _: Updated(parcel, timer=LATER)).changes == {}


def test_a_patch_is_what_it_sets_and_is_kept_to_be_applied_again() -> None:
    # S9
    patch = Patch({"weight": 9, "status": "new"}, reads=["status"])
    definition = declare(parcels(), does=patch)
    there = loaded(definition)
    found = process(definition, there, None, NOW)
    assert (found.changes, found.patch) == ({"grams": 9}, patch)
    assert there.entity.weight == 9, "the other stages are asked about the entity as it will be"


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (None, "process returned None: return Untouched(), Updated(entity) or Patch({…})"),
        (True, "process returned True: return Untouched()"),
        (Untouched, "process returned <class 'stages.outcomes.Untouched'>: return Untouched()"),
        (Updated(None), "None is no Parcel"),
        (Updated("p-1"), "'p-1' is no Parcel"),
        (Updated(Parcel("p-2", version=3)), "it is p-2 of version 3, not p-1"),
        (Updated(Parcel("p-1", version=4)), "it is p-1 of version 4, not p-1"),
        (Patch({"colour": "red"}), "no attribute colour"),
        (Patch({"id": "p-2"}), "no attribute id"),
        (Patch({"version": 9}), "no attribute version"),
        (Patch({"grams": 9}), "no attribute grams"),
        (Patch({"weight": 9}, reads=["colour"]), "no attribute colour"),
        (Patch({"weight": 9}, reads="status"), "reads='status' must list the names of attributes"),
        (Patch({"weight": 9}, reads=[1]), "reads=[1] must list"),  # type: ignore[list-item]
        (Patch(["weight"]), "Patch(['weight']) must map attributes to new values"),  # type: ignore[arg-type]
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_saved_is_refused(outcome: Any, said: str) -> None:
    # S5
    assert said in refused(outcome)


def test_what_it_raises_is_raised() -> None:
    def fails(_parcel: Parcel, _state: object) -> Untouched:
        raise LookupError("no price")

    with pytest.raises(LookupError, match="no price"):
        decided(fails)


@pytest.mark.parametrize(
    ("timer", "at"),
    [
        (None, None),
        (LATER, LATER),
        (LATER.astimezone(timezone(timedelta(hours=-7))), LATER),
        (timedelta(hours=2), LATER),
        (timedelta(0), NOW),
        (NOW - timedelta(minutes=5), NOW),
        (-timedelta(days=1), NOW),
    ],
)
@pytest.mark.parametrize(
    "outcome", [Untouched(), Patch({"weight": 9}), weigh], ids=lambda outcome: type(outcome).__name__
)
def test_a_timer_is_a_time_or_a_span(outcome: Any, timer: Any, at: datetime | None) -> None:
    # S5
    def timed(parcel: Parcel, state: object) -> Any:
        return replace(outcome(parcel, state) if outcome is weigh else outcome, timer=timer)

    assert decided(timed).timer == at


@pytest.mark.parametrize(
    ("timer", "said"),
    [
        (LATER.replace(tzinfo=None), "timer 2026-07-01T14:00:00 has no time zone: give one"),
        (NOW - timedelta(days=1, seconds=1), "lies more than a day in the past: write a later one"),
        (-timedelta(days=2), "lies more than a day in the past"),
        (timedelta(days=40_000), "lies more than 100 years away"),
        (timedelta.max, "lies more than 100 years away"),
        (timedelta.min, "lies more than 100 years away"),
        (5, "timer 5 must be a datetime with a time zone, or a timedelta from now"),
        ("2h", "timer '2h' must be a datetime"),
        (False, "timer False must be a datetime"),
    ],
)
def test_a_timer_that_cannot_be_meant_is_refused(timer: Any, said: str) -> None:
    assert said in refused(Untouched(timer=timer))


def test_the_state_stays_goes_or_is_new() -> None:
    # S5
    def states(state: Any) -> Decided:
        return decided(Untouched() if state is KEEP else Untouched(state=state), state=Int64Value)

    assert states(KEEP).state is KEEP
    assert states(None).state is None
    new = states(Int64Value(value=7)).state
    assert new == ("type.googleapis.com/google.protobuf.Int64Value", Int64Value(value=7).SerializeToString())


def test_a_state_of_another_type_is_refused() -> None:
    assert "must be a google.protobuf.Int64Value" in refused(Untouched(state=StringValue()), state=Int64Value)
    assert "declares none" in refused(Untouched(state=Int64Value()))


def test_it_is_given_its_state() -> None:
    # S6
    def count(_parcel: Parcel, state: Int64Value | None) -> Untouched:
        assert state is not None
        state.value += 1
        return Untouched(state=state)

    definition = declare(parcels(), state=Int64Value)
    there = Stored(*pack(definition, "p-1", Int64Value(value=7)), 4)
    found = decided(count, there, state=Int64Value)
    assert found.state == pack(definition, "p-1", Int64Value(value=8))


def test_the_caller_may_call() -> None:
    seen = []

    def call(function: Callable[..., Any], entity: Any, state: Any) -> Any:
        seen.append((entity.id, state))
        return function(entity, state)

    definition = declare(parcels())
    assert process(definition, loaded(definition), None, NOW, call).outcome == Untouched()
    assert seen == [("p-1", None)]
