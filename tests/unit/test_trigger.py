"""When triggers fire."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta

import pytest

from app.errors import BadRequest, NestedTrigger, TidemillError
from triggers.trigger import (
    All,
    Any,
    ChunkDelay,
    ChunkDelta,
    ChunkRefDelay,
    CtlTrigger,
    Delay,
    Delta,
    RefDelay,
    Trigger,
)

P, Q = ("dds.orders", "loaded_to"), ("mart.orders", "built_to")
NOW = datetime(2021, 4, 25, 4, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(
    trigger: Trigger, *, p: str | None = None, q: str | None = None, seen: str | None = None, now: datetime = NOW
) -> bool:
    current = {pair: at(text) for pair, text in ((P, p), (Q, q)) if text}
    return trigger.check(now, current, {P: at(seen)} if seen else {}).fired


def test_two_days_of_the_calendar_are_not_two_days_of_time() -> None:
    # T5
    values = {"seen": "2021-04-23 03:51:16", "p": "2021-04-25 03:27:33"}
    assert fires(ChunkDelta(*P, "day", 2), **values)  # type: ignore[arg-type]
    assert not fires(Delta(*P, "2d"), **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("trigger", "values", "fired"),
    [
        # T2
        (Delta(*P, "2d"), {"seen": "2021-04-23", "p": "2021-04-25"}, True),
        (Delta(*P, "2d"), {"seen": "2021-04-23 00:00:00.000001", "p": "2021-04-25"}, False),
        (Delta(*P, "1s"), {"seen": "2021-04-23", "p": "2021-04-22"}, False),
        # T3
        (Delay(*P, "2h"), {"p": "2021-04-25 02:00"}, True),
        (Delay(*P, "2h"), {"p": "2021-04-25 01:59:59.999999"}, False),
        (Delay(*P, "0s"), {"p": "2021-04-26"}, True),
        # T4
        (RefDelay(*P, *Q, "2h"), {"p": "2021-04-25 02:00", "q": "2021-04-25 04:00"}, True),
        (RefDelay(*P, *Q, "2h"), {"p": "2021-04-25 02:00", "q": "2021-04-25 04:00:00.000001"}, False),
        (RefDelay(*P, *Q, "0s"), {"p": "2021-04-25 02:00", "q": "2021-04-20"}, True),
        # T5
        (ChunkDelta(*P, "30min", 2), {"seen": "2021-04-23 01:42:13", "p": "2021-04-23 02:30"}, True),
        (ChunkDelta(*P, "30min", 2), {"seen": "2021-04-23 01:42:13", "p": "2021-04-23 02:29:59"}, False),
        (ChunkDelay(*P, "day", 1), {"p": "2021-04-24"}, True),
        (ChunkDelay(*P, "day", 1), {"p": "2021-04-23 23:59:59"}, False),
        (ChunkRefDelay(*P, *Q, "month", 1), {"p": "2020-12-01", "q": "2021-01-31"}, True),
        (ChunkRefDelay(*P, *Q, "month", 1), {"p": "2020-11-30", "q": "2021-01-01"}, False),
        # T6
        (ChunkDelta(*P, "year"), {"seen": "2020-12-31 23:59", "p": "2021-01-01"}, True),
        (ChunkDelta(*P, "year"), {"seen": "2021-01-01", "p": "2021-12-31 23:59"}, False),
        (ChunkDelta(*P, "quarter"), {"seen": "2021-03-31", "p": "2021-04-01"}, True),
        (ChunkDelta(*P, "month"), {"seen": "2020-02-29", "p": "2020-02-29 23:59:59"}, False),
        (ChunkDelay(*P, "day"), {"p": "2021-04-25"}, True),
        (ChunkDelay(*P, "day"), {"p": "2021-04-24 23:59:59"}, False),
        (ChunkDelay(*P, "day"), {"p": "2021-05-25"}, True),
        (ChunkRefDelay(*P, *Q, "week"), {"p": "2021-04-19", "q": "2021-04-25 23:59"}, True),
        (ChunkRefDelay(*P, *Q, "week"), {"p": "2021-04-18", "q": "2021-04-19"}, False),
        # T7: in Moscow it is the 25th from 21:00 UTC of the 24th on.
        (ChunkDelay(*P, "day", tz="Europe/Moscow"), {"p": "2021-04-24 21:00"}, True),
        (ChunkDelay(*P, "day", tz="Europe/Moscow"), {"p": "2021-04-24 20:59"}, False),
    ],
)
def test_a_leaf_fires_from_its_threshold_on(trigger: CtlTrigger, values: dict[str, str], fired: bool) -> None:  # noqa: FBT001
    assert fires(trigger, **values) is fired  # type: ignore[arg-type]


@pytest.mark.parametrize("leaf", [Delta(*P, "2d"), ChunkDelta(*P, "day"), ChunkDelta(*P, "month", 5)])
def test_without_last_seen_any_value_fires(leaf: CtlTrigger) -> None:
    # T12
    assert fires(leaf, p="2000-01-01")
    assert not fires(leaf)
    assert not fires(leaf, seen="2021-04-25")
    assert not fires(All(leaf, Delay(*P, "1h")), p="2000-01-01")


def test_a_changed_trigger_keeps_what_was_seen_of_each_parameter() -> None:
    # T13: Q is new to the task, P is not, wherever it stands.
    after = All(Delta(*Q, "1d"), Delta(*P, "1d"))
    assert fires(after, p="2021-04-25", q="2021-04-25", seen="2021-04-24")
    assert not fires(after, p="2021-04-25", q="2021-04-25", seen="2021-04-25")


@pytest.mark.parametrize(
    ("leaf", "missing"),
    [
        # T14
        (Delta(*P, "2d"), ["current", "last_seen"]),
        (Delay(*P, "2d"), ["current"]),
        (RefDelay(*P, *Q, "2d"), ["current", "reference"]),
        (ChunkDelta(*P, "day"), ["current", "last_seen"]),
        (ChunkDelay(*P, "day"), ["current"]),
        (ChunkRefDelay(*P, *Q, "day"), ["current", "reference"]),
    ],
)
def test_a_missing_value_never_fires_and_never_raises(leaf: CtlTrigger, missing: list[str]) -> None:
    verdict = leaf.check(NOW, {}, {})
    assert not verdict.fired
    assert verdict.tree["missing"] == missing
    assert "dds.orders.loaded_to" in verdict.explain()
    assert "has no value yet" in verdict.explain()
    if leaf.ref:
        assert not fires(leaf, p="2021-04-25")
        assert not fires(leaf, q="2021-04-25")


def test_latched_is_what_rests_on_last_seen() -> None:
    # T10
    delta, delay = ChunkDelta(*P, "day"), Delay(*P, "2h")
    assert [each.latched for each in (delta, Delta(*P, "1s"), delay, RefDelay(*P, *Q, "2h"))] == [
        True,
        True,
        False,
        False,
    ]
    assert [each.latched for each in (All(delta, delay), All(delay, delay))] == [True, False]
    assert [each.latched for each in (Any(delta, delay), Any(delta, delta))] == [False, True]


def test_all_and_any_read_every_leaf() -> None:
    # T8, T11: also what comes after the leaf that decided is recorded.
    yes, no = Delay(*P, "2h"), RefDelay(*P, *Q, "0s")
    current = {P: at("2021-04-25 03:00"), Q: at("2021-04-25 04:00"), ("x", "y"): NOW}
    assert fires(Any(yes, no), p="2021-04-25 03:00", q="2021-04-25 04:00")
    assert not fires(All(yes, no), p="2021-04-25 03:00", q="2021-04-25 04:00")
    verdict = Any(yes, no).check(NOW, current, {P: NOW, ("x", "y"): NOW})
    assert verdict.current == {P: current[P], Q: current[Q]}
    assert verdict.seen == {P: NOW}
    assert verdict.now == NOW
    assert [child["fired"] for child in verdict.tree["children"]] == [True, False]


def test_parameters_come_once_and_in_order_references_included() -> None:
    assert All(RefDelay(*P, *Q, "1h"), Delta(*Q, "1h"), Delta("x", "y", "1h")).parameters == (P, Q, ("x", "y"))
    assert RefDelay(*P, *P, "1h").parameters == (P,)
    assert Delta(*P, "1h").leaves == (Delta(*P, "1h"),)


@pytest.mark.parametrize("outer", [All, Any])
@pytest.mark.parametrize("inner", [All, Any])
def test_aggregates_do_not_nest(outer: type[All | Any], inner: type[All | Any]) -> None:
    # T8
    with pytest.raises(NestedTrigger) as caught:
        outer(Delta(*P, "1d"), inner(Delay(*P, "2h")))  # type: ignore[arg-type]
    assert isinstance(caught.value, BadRequest | ValueError | TypeError | TidemillError)
    assert isinstance(caught.value, TypeError)
    assert ("write its triggers directly" if outer is inner else "split the work in two tasks") in str(caught.value)


@pytest.mark.parametrize(
    ("leaves", "said"),
    [
        ((), "is empty: give it at least one trigger"),
        (([Delta(*P, "1d")],), "one by one, not as a list"),
        ((None,), "None, which is no trigger"),
    ],
)
def test_an_aggregate_of_nothing_or_of_no_triggers_is_refused(leaves: tuple[CtlTrigger, ...], said: str) -> None:
    for aggregate in (All, Any):
        with pytest.raises(BadRequest, match=said):
            aggregate(*leaves)


@pytest.mark.parametrize("value", ["0s", "5", "soon", 5, None, True, timedelta(0), timedelta(seconds=-1)])
def test_a_wrong_distance_is_refused(value: timedelta) -> None:
    with pytest.raises(BadRequest, match=r"min_delta=.*'90s'"):
        Delta(*P, value)
    if value in ("0s", timedelta(0)):
        with pytest.raises(BadRequest, match="must be longer than 0s"):
            Delta(*P, value)
        assert Delay(*P, value).max_delay == RefDelay(*P, *Q, value).max_delay == timedelta(0)
        assert Delay(*P, timedelta(microseconds=1)) != Delay(*P, value)
    else:
        with pytest.raises(BadRequest, match=r"max_delay=.*'90s'"):
            Delay(*P, value)


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", 10**11])
def test_a_wrong_number_of_chunks_is_refused(value: int) -> None:
    for make in (ChunkDelta, ChunkDelay):
        with pytest.raises(BadRequest, match=r"delta=.* must be a whole number of chunks from \d on, or left out"):
            make(*P, "day", value)
    with pytest.raises(BadRequest, match="from 1 on"):
        ChunkDelta(*P, "day", 0)
    assert ChunkDelta(*P, "day", 10**10).delta == 10**10
    assert ChunkDelay(*P, "day", 0).delta == 0


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\x00", "\ud800", "x" * 201, None, 5])
def test_a_wrong_name_is_refused(name: str) -> None:
    for make in (lambda: Delta(name, "p", "1s"), lambda: RefDelay("a", "p", "b", name, "1s")):
        with pytest.raises(BadRequest, match=r"entity=|ref_parameter="):
            make()


def test_a_moment_without_a_zone_is_refused_by_name() -> None:
    with pytest.raises(BadRequest, match=r"current dds.orders.loaded_to is 2021-04-25T00:00:00, without a time zone"):
        Delay(*P, "1h").check(NOW, {P: datetime(2021, 4, 25)}, {})  # noqa: DTZ001


@pytest.mark.parametrize(
    "trigger", [Delta(*P, "2d"), ChunkRefDelay(*P, *Q, "day", 1, tz="Asia/Tokyo"), Any(Delay(*P, "2h"))]
)
def test_triggers_are_values(trigger: Trigger) -> None:
    twin = pickle.loads(pickle.dumps(trigger))  # noqa: S301
    assert twin == copy.deepcopy(trigger) == trigger
    assert hash(twin) == hash(trigger)
    with pytest.raises(FrozenInstanceError):
        setattr(trigger, "leaves" if isinstance(trigger, All | Any) else "entity", None)


@pytest.mark.parametrize(
    ("leaf", "said"),
    [
        (Delta(*P, "26h"), "must grow by 1d 2h: "),
        (Delay(*P, "0s"), "must be at most 0s behind now: "),
        (RefDelay(*P, *Q, "90s"), "must be at most 1min 30s behind mart.orders.built_to: "),
        (ChunkDelta(*P, "day", tz="Asia/Tokyo"), "must enter a later day (Asia/Tokyo): "),
        (ChunkDelta(*P, "day", 2, tz="Asia/Tokyo"), "must move on by 2 days (Asia/Tokyo): "),
        (ChunkDelta(*P, "30min", tz="Asia/Tokyo"), "must enter a later 30min chunk: "),
        (ChunkDelay(*P, "30min", 2), "must be at most 2 chunks of 30min behind now: "),
        (ChunkDelay(*P, "hour"), "must have reached the hour of now: "),
        (ChunkRefDelay(*P, *Q, "week", 1), "must be at most 1 week behind mart.orders.built_to: "),
    ],
)
def test_each_condition_is_said_in_one_sentence(leaf: CtlTrigger, said: str) -> None:
    # T24
    assert leaf.check(NOW, {}, {}).explain() == f"✗ dds.orders.loaded_to {said}it has no value yet"


def test_a_distance_that_no_date_reaches_is_said() -> None:
    verdict = ChunkDelta(*P, "year", 9000).check(NOW, {P: NOW}, {P: NOW})
    assert verdict.explain().endswith("; no date is late enough")
    assert (verdict.tree["threshold"], verdict.tree["distance"]) == (None, None)
