"""What holds for every trigger, checked against the rules written down naively."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from triggers.chunks import Scale, to_instant
from triggers.shape import from_shape, shape
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
    from_json,
)
from triggers.verdict import Parameter, explain

Values = dict[Parameter, datetime]

pairs = st.tuples(st.sampled_from("ab"), st.sampled_from("pq"))
moments = st.datetimes(datetime(2021, 1, 1), datetime(2021, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
values: st.SearchStrategy[Values] = st.dictionaries(pairs, moments)
spans = st.timedeltas(timedelta(microseconds=1), timedelta(days=60))
scales = st.sampled_from(["30min", "hour", "day", "week", "month", "quarter", "year"])
zones = st.sampled_from(
    ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York", "Africa/Cairo", "America/Santiago"]
)
counts = st.none() | st.integers(1, 40)
names: dict[str, st.SearchStrategy[str]] = {"entity": st.sampled_from("ab"), "parameter": st.sampled_from("pq")}
references = names | {f"ref_{name}": strategy for name, strategy in names.items()}
chunks: dict[str, st.SearchStrategy[object]] = {"scale": scales, "delta": counts, "tz": zones}
leaves: st.SearchStrategy[CtlTrigger] = st.one_of(
    st.builds(Delta, **names, min_delta=spans),
    st.builds(Delay, **names, max_delay=spans),
    st.builds(RefDelay, **references, max_delay=spans),
    st.builds(ChunkDelta, **names, **chunks),
    st.builds(ChunkDelay, **names, **chunks),
    st.builds(ChunkRefDelay, **references, **chunks),
)
several = st.lists(leaves, min_size=1, max_size=4)
triggers: st.SearchStrategy[Trigger] = (
    leaves | several.map(lambda found: All(*found)) | several.map(lambda found: Any(*found))
)


def number(leaf: ChunkDelta | ChunkDelay | ChunkRefDelay, moment: datetime) -> int:
    return Scale.parse(leaf.scale, leaf.tz).number(to_instant(moment))


def rule(trigger: Trigger, now: datetime, current: Values, seen: Values) -> bool:
    """T1 to T8, T12 and T14, word for word: of these four values, and of nothing else."""
    if isinstance(trigger, All):
        return all(rule(leaf, now, current, seen) for leaf in trigger.leaves)
    if isinstance(trigger, Any):
        return any(rule(leaf, now, current, seen) for leaf in trigger.leaves)
    value, last = (each.get((trigger.entity, trigger.parameter)) for each in (current, seen))
    reference = current.get(trigger.ref) if trigger.ref else None
    if value is None or (trigger.ref and reference is None):
        return False
    match trigger:
        case Delta():
            return last is None or value - last >= trigger.min_delta
        case Delay():
            return now - value <= trigger.max_delay
        case RefDelay():
            assert reference
            return reference - value <= trigger.max_delay
        case ChunkDelta():
            return last is None or number(trigger, value) - number(trigger, last) >= (trigger.delta or 1)
        case ChunkDelay():
            return number(trigger, now) - number(trigger, value) <= (trigger.delta or 0)
        case ChunkRefDelay():
            assert reference
            return number(trigger, reference) - number(trigger, value) <= (trigger.delta or 0)
        case _:
            raise AssertionError(trigger)


@given(triggers, moments, values, values)
@settings(max_examples=300, deadline=None)
@example(Delta("a", "p", "2d"), datetime(2021, 5, 1, tzinfo=UTC), {}, {})
def test_check_and_shape_decide_by_the_rules(trigger: Trigger, now: datetime, current: Values, seen: Values) -> None:
    # T1 T2 T3 T4 T5 T6 T7 T8 T12 T14
    verdict = trigger.check(now, current, seen)
    assert verdict.fired is rule(trigger, now, current, seen)
    ints = {pair: to_instant(moment) for pair, moment in current.items()}
    last = {pair: to_instant(moment) for pair, moment in seen.items()}
    triples = [
        (ints.get(own := (leaf.entity, leaf.parameter)), ints.get(leaf.ref) if leaf.ref else None, last.get(own))
        for leaf in trigger.leaves
    ]
    assert from_shape(shape(trigger)).holds(to_instant(now), triples) is verdict.fired


@given(triggers, moments, values, values, moments)
@settings(max_examples=200, deadline=None)
def test_what_a_trigger_does_not_name_changes_nothing(
    trigger: Trigger, now: datetime, current: Values, seen: Values, other: datetime
) -> None:
    # T1
    alone = trigger.check(now, current, seen)
    stranger = {("stranger", "p"): other}
    assert trigger.check(now, current | stranger, seen | stranger) == alone
    own = {pair: current[pair] for pair in trigger.parameters if pair in current}
    assert trigger.check(now, own, seen) == alone


@given(leaves, moments, values, values)
@settings(max_examples=300, deadline=None)
def test_a_leaf_flips_exactly_at_its_threshold(leaf: CtlTrigger, now: datetime, current: Values, seen: Values) -> None:
    own = (leaf.entity, leaf.parameter)
    assume(leaf.ref != own)
    text = leaf.check(now, current, seen).tree["threshold"]
    assume(text is not None)
    threshold = datetime.fromisoformat(text)
    assert leaf.check(now, current | {own: threshold}, seen).fired
    before = leaf.check(now, current | {own: threshold - timedelta(microseconds=1)}, seen)
    assert not before.fired
    assert before.tree["distance_seconds"] == 1e-6


@given(triggers, moments, values, values, st.timedeltas(timedelta(0), timedelta(days=400)))
@settings(max_examples=300, deadline=None)
def test_time_alone_never_makes_a_trigger_fire(
    trigger: Trigger, now: datetime, current: Values, seen: Values, later: timedelta
) -> None:
    if trigger.check(now + later, current, seen).fired:
        assert trigger.check(now, current, seen).fired


@given(leaves, moments, values, values)
@settings(max_examples=300, deadline=None)
def test_what_lapses_by_time_lapses_when_it_said(
    leaf: CtlTrigger, now: datetime, current: Values, seen: Values
) -> None:
    verdict = leaf.check(now, current, seen)
    if text := verdict.tree["expires_at"]:
        expires = datetime.fromisoformat(text)
        assert leaf.check(expires - timedelta(microseconds=1), current, seen).fired
        assert not leaf.check(expires, current, seen).fired
    elif verdict.fired:
        assert leaf.check(now + timedelta(days=4000), current, seen).fired


@given(triggers, moments, values, values)
@settings(max_examples=200, deadline=None)
def test_the_tree_is_plain_data_that_explains_itself(
    trigger: Trigger, now: datetime, current: Values, seen: Values
) -> None:
    # T24
    verdict = trigger.check(now, current, seen)
    stored = json.loads(json.dumps(verdict.tree))
    assert stored == verdict.tree
    assert explain(stored) == verdict.explain()
    assert verdict.explain().startswith("✓ " if verdict.fired else "✗ ")
    # T11: every value that there is, of every leaf and reference.
    assert verdict.current == {pair: current[pair] for pair in trigger.parameters if pair in current}
    assert verdict.seen == {pair: seen[pair] for pair in trigger.parameters if pair in seen}


@given(triggers)
@settings(max_examples=200, deadline=None)
def test_json_gives_the_same_trigger_back(trigger: Trigger) -> None:
    back = from_json(json.loads(json.dumps(trigger.to_json())))
    assert back == trigger
    assert shape(back) == shape(trigger)


@given(triggers, moments, values, values)
@settings(max_examples=200, deadline=None)
def test_a_parameter_new_to_the_task_is_as_on_the_first_run(
    trigger: Trigger, now: datetime, current: Values, seen: Values
) -> None:
    # T12, T13: what is not seen of one parameter changes nothing for the others.
    for leaf in trigger.leaves:
        own = (leaf.entity, leaf.parameter)
        alone = leaf.check(now, current, {pair: moment for pair, moment in seen.items() if pair == own}).fired
        assert alone == leaf.check(now, current, seen).fired
        if leaf.needs_seen:
            assert leaf.check(now, current, {}).fired == (own in current)
