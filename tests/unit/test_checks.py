"""What can be said of triggers without running anything."""

from __future__ import annotations

from datetime import timedelta

import pytest

from triggers.checks import Finding, FindingKind, TaskFacts, check
from triggers.cycles import cycles
from triggers.trigger import All, Any, ChunkDelta, Delay, Delta, Trigger

Pair = tuple[str, str]
RAW, A, B, C = ("raw", "to"), ("a", "to"), ("b", "to"), ("c", "to")


def task(name: str, trigger: Trigger, *produces: Pair, min_interval: timedelta | None = None) -> TaskFacts:
    return TaskFacts(name, trigger, frozenset(produces), min_interval)


def day(pair: Pair) -> ChunkDelta:
    return ChunkDelta(*pair, "day")


def found(kind: FindingKind, *tasks: TaskFacts, valued: tuple[Pair, ...] = ()) -> list[Finding]:
    return [each for each in check(tasks, set(valued)) if each.kind is kind]


def names(findings: list[Finding]) -> list[tuple[str, ...]]:
    return [each.tasks for each in findings]


@pytest.mark.parametrize("interval", [None, timedelta(0)])
def test_an_unlatched_task_without_an_interval_runs_freely(interval: timedelta | None) -> None:
    # T10
    free = Delay(*RAW, "2h")
    findings = found(
        FindingKind.FREE_RUNNING,
        task("free", free, min_interval=interval),
        task("mixed", Any(free, day(RAW)), min_interval=interval),
        task("latched", All(free, day(RAW))),
        task("slow", free, min_interval=timedelta(minutes=1)),
    )
    assert names(findings) == [("free",), ("mixed",)]
    assert "give it a min_interval longer than 0s" in findings[0].sentence


def test_a_circle_that_nobody_starts_never_fires() -> None:
    first, second = task("first", day(A), B), task("second", day(B), A)
    after = task("after", All(day(RAW), day(A)), C)
    either = task("either", Any(day(RAW), day(A)))
    findings = found(FindingKind.NEVER_FIRES, first, second, after, either, valued=(RAW,))
    assert names(findings) == [("after",), ("first",), ("second",)]
    assert findings[0].sentence.startswith("after can never fire: a.to has no value, and only tasks that can never")


def test_one_value_or_one_other_producer_starts_the_circle() -> None:
    first, second = task("first", day(A), B), task("second", day(B), A)
    assert found(FindingKind.NEVER_FIRES, first, second, valued=(A,)) == []
    assert found(FindingKind.NEVER_FIRES, first, second, task("third", day(RAW), B), valued=(RAW,)) == []


def test_a_parameter_that_comes_from_outside_is_no_reason_never_to_fire() -> None:
    findings = check([task("t", day(RAW))], set())
    assert [each.kind for each in findings] == [FindingKind.NO_VALUE]
    assert "raw.to has no value and no task produces it, but t waits for it" in findings[0].sentence
    assert check([task("t", day(RAW))], {RAW}) == []


@pytest.mark.parametrize(
    "trigger", [Delta(*RAW, "4000000d"), ChunkDelta(*RAW, "year", 9998), ChunkDelta(*RAW, "min", 10**10)]
)
def test_a_distance_longer_than_time_never_fires_again(trigger: Trigger) -> None:
    findings = found(FindingKind.NEVER_FIRES, task("t", trigger), valued=(RAW,))
    assert "t can never fire again after its first run: raw.to must" in findings[0].sentence
    assert found(FindingKind.NEVER_FIRES, task("t", Any(*trigger.leaves, day(RAW))), valued=(RAW,)) == []


def test_each_cycle_is_shown_once_from_its_first_name() -> None:
    tasks = [task("c", day(B), C), task("a", day(C), A), task("b", day(A), B), task("self", day(RAW), RAW)]
    findings = found(FindingKind.CYCLE, *tasks, task("aside", day(A)), valued=(A, B, C, RAW))
    assert names(findings) == [("a", "b", "c"), ("self",)]
    assert findings[0].sentence.startswith("a → b → c → a: ")
    assert findings[1].sentence.startswith("self → self: ")


def test_findings_do_not_follow_the_order_of_the_tasks() -> None:
    tasks = [task("b", day(B), A), task("a", day(A), B), task("x", Delay(*RAW, "1h"))]
    assert check(tasks, set()) == check(tasks[::-1], set())
    assert check([], set()) == []


def test_two_cycles_that_share_a_name_are_both_found() -> None:
    assert cycles({"a": "b", "b": "ac", "c": "a", "d": "a", "e": ""}) == [("a", "b"), ("a", "b", "c")]
    assert cycles({"b": "b", "a": "a"}) == [("a",), ("b",)]


def test_a_long_chain_and_a_long_cycle_are_no_matter() -> None:
    chain = {f"{number:05}": [f"{number + 1:05}"] for number in range(20_000)}
    assert cycles(chain) == []
    ring = {f"{number:03}": [f"{(number + 1) % 300:03}"] for number in range(300)}
    assert [len(cycle) for cycle in cycles(ring)] == [300]
