"""The index of triggers: what its promises mean on small examples (T18)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.errors import NotFound
from triggers.index import Index
from triggers.instants import DAY, END, HOUR, to_instant
from triggers.trigger import All, Any, ChunkDelay, ChunkDelta, Delay, Delta, RefDelay

P, Q, R = ("dds.orders", "loaded_to"), ("dds.items", "loaded_to"), ("mart.orders", "built_to")
NOW = to_instant(datetime(2021, 4, 25, 4, tzinfo=UTC))
LONG_SPAN = timedelta.max


def index_of(**triggers: Delta | Delay | RefDelay | ChunkDelta | ChunkDelay | All | Any) -> Index:
    index = Index(NOW)
    for name, trigger in triggers.items():
        index.put(name, trigger, {P: NOW, Q: NOW})
    for parameter in (P, Q, R):
        index.set_current(parameter, NOW)
    index.flipped()
    return index


def test_a_move_flips_only_the_leaves_between() -> None:
    index = index_of(hour=Delta(*P, "1h"), day=Delta(*P, "1d"), week=Delta(*P, "1w"), other=Delta(*Q, "1h"))
    index.set_current(P, NOW + 2 * DAY)
    assert index.flipped() == {"hour", "day"}
    index.set_current(P, NOW + 2 * HOUR)
    assert index.flipped() == {"day"}
    assert [index.truth(name) for name in ("hour", "day", "week", "other")] == [True, False, False, False]


def test_flipped_is_net() -> None:
    index = index_of(task=Delta(*P, "1h"))
    index.set_current(P, NOW + HOUR)
    index.set_current(P, NOW)
    assert index.flipped() == set()


def test_what_is_dropped_is_not_reported_and_put_again_is() -> None:
    index = index_of(task=Delta(*P, "1h"))
    index.set_current(P, NOW + HOUR)
    assert index.flipped() == {"task"}
    index.drop("task")
    index.drop("task")
    assert index.flipped() == set()
    assert "task" not in index
    assert len(index) == 0
    index.put("task", Delta(*P, "1h"), {})
    index.set_current(P, NOW)
    assert index.flipped() == {"task"}


def test_put_gives_the_parameters_that_have_no_value_yet() -> None:
    index = index_of(task=Delta(*P, "1h"))
    assert index.put("other", RefDelay(*P, *Q, "1h"), {}) == {Q}
    assert index.put("other", RefDelay(*P, *Q, "2h"), {}) == set()


def test_a_parameter_that_no_task_names_is_not_kept() -> None:
    index = index_of(task=RefDelay(*P, *Q, "1h"))
    assert (index.current(P), index.current(Q), index.current(R)) == (NOW, NOW, None)
    index.drop("task")
    assert (index.current(P), index.current(Q)) == (None, None)


def test_an_edited_trigger_keeps_the_values_of_its_parameters() -> None:
    index = index_of(task=Delta(*P, "1h"))
    index.put("task", Delta(*P, "1s"), {P: NOW - HOUR})
    assert index.truth("task")
    assert index.current(P) == NOW


def test_what_was_never_seen_fires_with_any_value() -> None:
    # T12, T14
    index = Index(NOW)
    index.put("task", ChunkDelta(*P, "day"), {})
    assert not index.truth("task")
    index.set_current(P, NOW - 1000 * DAY)
    assert index.flipped() == {"task"}


def test_seen_replaces_all_that_was_seen() -> None:
    # T11, T16
    index = index_of(task=All(ChunkDelta(*P, "day"), ChunkDelta(*Q, "day")))
    index.set_current(P, NOW + DAY)
    assert not index.truth("task")
    index.seen("task", {P: NOW})
    assert index.truth("task")
    index.seen("task", {P: NOW + DAY, Q: NOW})
    assert index.flipped() == set()
    assert not index.truth("task")


def test_next_timer_is_the_first_moment_at_which_time_makes_one_false() -> None:
    index = index_of(exact=Delay(*P, "2h"), chunk=ChunkDelay(*Q, "day"), never=Delta(*P, "1h"))
    assert index.next_timer() == NOW + 2 * HOUR + 1
    index.set_now(NOW + 2 * HOUR)
    assert index.flipped() == set()
    index.set_now(NOW + 2 * HOUR + 1)
    assert index.flipped() == {"exact"}
    assert index.next_timer() == NOW + 20 * HOUR
    index.set_now(NOW + 20 * HOUR)
    assert index.flipped() == {"chunk"}
    assert index.next_timer() is None


def test_next_timer_moves_with_the_value() -> None:
    index = index_of(task=Delay(*P, "2h"))
    index.set_current(P, NOW + HOUR)
    assert index.next_timer() == NOW + 3 * HOUR + 1
    index.set_current(P, NOW - HOUR)
    assert index.next_timer() == NOW + HOUR + 1
    index.set_current(P, None)
    assert index.next_timer() is None


def test_a_clock_set_back_makes_delays_true_again() -> None:
    index = index_of(task=Delay(*P, "2h"))
    index.set_now(NOW + 3 * HOUR)
    assert index.flipped() == {"task"}
    index.set_now(NOW)
    assert index.flipped() == {"task"}
    assert index.next_timer() == NOW + 2 * HOUR + 1


def test_a_leaf_put_in_late_is_measured_from_now() -> None:
    index = index_of(long=Delay(*P, "5h"))
    index.set_now(NOW + 3 * HOUR)
    index.put("short", Delay(*P, "2h"), {})
    index.put("middle", Delay(*P, "4h"), {})
    assert [index.truth(name) for name in ("long", "short", "middle")] == [True, False, True]
    assert index.next_timer() == NOW + 4 * HOUR + 1


def test_a_reference_that_moves_on_lapses_what_it_leaves_behind() -> None:
    index = index_of(near=RefDelay(*P, *Q, "1h"), far=RefDelay(*R, *Q, "1d"))
    index.set_current(Q, NOW + HOUR)
    assert index.flipped() == set()
    index.set_current(Q, NOW + HOUR + 1)
    assert index.flipped() == {"near"}
    index.set_current(Q, NOW)
    assert index.flipped() == {"near"}
    index.set_current(Q, None)
    assert index.flipped() == {"near", "far"}
    # What waits for a reference is no matter of time.
    assert index.next_timer() is None


def test_lacking_names_what_could_make_false_leaves_true() -> None:
    # T21: not a reference that moves on, unless there is none.
    index = index_of(task=All(Delta(*P, "1h"), RefDelay(*Q, *R, "1h"), Delay(*Q, "1h")))
    assert index.lacking("task") == {P}
    index.set_current(R, NOW + DAY)
    assert index.lacking("task") == {P, Q}
    index.set_current(R, None)
    assert index.lacking("task") == {P, Q, R}
    index.set_current(R, NOW + DAY)
    index.set_now(NOW + DAY)
    index.set_current(R, NOW)
    index.set_current(P, NOW + DAY)
    assert index.lacking("task") == {Q}


def test_watchers_name_references_too() -> None:
    index = index_of(one=Delta(*P, "1h"), two=RefDelay(*Q, *P, "1h"), three=Delta(*Q, "1h"))
    assert index.watchers(P) == {"one", "two"}
    assert index.watchers(R) == set()


def test_the_longest_durations_are_only_far() -> None:
    index = index_of(delta=Delta(*P, LONG_SPAN), delay=Delay(*P, LONG_SPAN), chunk=ChunkDelta(*P, "week", 10**10))
    assert [index.truth(name) for name in ("delta", "delay", "chunk")] == [False, True, False]
    assert index.next_timer() is None


@pytest.mark.parametrize("others", [50, 2000])
def test_very_many_leaves_on_one_parameter_stay_sorted(others: int) -> None:
    index = Index(NOW)
    for number in range(others):
        index.put(f"t{number}", Delta(*P, f"{number * 7919 % others + 1}s"), {P: NOW})
    index.set_current(P, NOW)
    index.flipped()
    # Sorted in one by one, beside those that are there.
    for number in range(0, others, 3):
        index.seen(f"t{number}", {P: NOW + DAY})
    for number in range(1, others, 3):
        index.drop(f"t{number}")
    index.set_current(P, NOW + 10_000_000)
    wanted = {f"t{number}" for number in range(2, others, 3) if number * 7919 % others + 1 <= 10}
    assert index.flipped() == wanted


def test_values_that_go_to_and_fro_leave_no_heap_behind() -> None:
    index = index_of(task=Delay(*P, "2h"))
    for number in range(2000):
        index.set_current(P, NOW - number % 2 * (number + 1))
        index.next_timer()
    assert entries(index) < 200


def entries(index: Index) -> int:
    timers = index._now.timers
    assert timers is not None
    return len(timers._heap)


@pytest.mark.parametrize("others", [10, 10_000])
def test_a_change_looks_at_those_that_it_flips_only(others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # T18: counted, not timed.
    index = index_of(**{f"hot{number}": Delta(*P, "1h") for number in range(10)})
    for number in range(others):
        index.put(f"same{number}", Delta(*P, "1d"), {P: NOW})
        index.put(f"else{number}", Delta(f"e{number}", "p", "1h"), {})
        index.put(f"ref{number}", RefDelay(f"e{number}", "p", *P, "30d"), {})
        index.set_current((f"e{number}", "p"), NOW)
    index.flipped()
    looked = counted(monkeypatch, "_at")
    groups = counted(monkeypatch, "_follow")
    index.set_current(P, NOW + HOUR)
    assert len(index.flipped()) == 10
    assert len(looked) == 10
    assert len(groups) == 1


def counted(monkeypatch: pytest.MonkeyPatch, method: str) -> list[object]:
    """What the index's method is called with."""
    calls: list[object] = []
    real = getattr(Index, method)

    def call(self: Index, what: object) -> object:
        calls.append(what)
        return real(self, what)

    monkeypatch.setattr(Index, method, call)
    return calls


def test_a_task_that_is_not_there_is_named() -> None:
    for ask in (Index.truth, Index.lacking, lambda index, name: index.seen(name, {})):
        with pytest.raises(NotFound, match="'build' is not in the index"):
            ask(Index(NOW), "build")


def test_leaves_are_sorted_in_one_by_one_among_many_and_taken_out_again() -> None:
    # T18
    hours = {f"every {n}": n for n in range(2, 200, 2)}
    index = Index(0)

    def put(name: str) -> None:
        index.put(name, Delta("a", "p", timedelta(hours=hours[name])), {("a", "p"): 0})

    def assert_right() -> None:
        for hour in (0, 7, 6, 51, 52, 50, 151, 150, 300):
            index.set_current(("a", "p"), hour * HOUR)
            assert {name for name in hours if index.truth(name)} == {name for name, n in hours.items() if n <= hour}

    for name in hours:
        put(name)
    assert_right()
    for n in (151, 51, 7):
        hours[f"every {n}"] = n
        put(f"every {n}")
    assert_right()
    for n in (2, 50, 198):
        index.drop(f"every {n}")
        del hours[f"every {n}"]
        assert_right()
        hours[f"again {n}"] = n
        put(f"again {n}")
    assert_right()
    for name in hours:
        index.drop(name)
    assert index.watchers(("a", "p")) == set()


def test_what_lapses_at_the_end_of_time_has_no_timer() -> None:
    index = Index(0)
    index.put("last", Delay("a", "p", timedelta(microseconds=END - 2)), {})
    index.set_current(("a", "p"), 0)
    assert index.next_timer() == END - 1
    index.set_current(("a", "p"), 1)
    assert index.next_timer() is None
