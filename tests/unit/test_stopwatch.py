"""What is measured in memory, handed on through a pipe, and added up: nothing is lost, and names are bounded."""

from __future__ import annotations

import math
import os

from app.stopwatch import BOUNDS, NAME_LIMIT, OTHER, SERIES_MOST, WAIT, WORK, Piece, Series, Stopwatch


def test_each_lies_in_the_bucket_that_holds_it() -> None:
    watch = Stopwatch()
    for seconds in (0.0, 0.001, 0.0011, 4000.0):
        watch.worked("job", "shop.send", "done", seconds)
    series = Series(WORK, "job", "shop.send", "done")
    assert watch.take() == [
        Piece(series, 0.001, 2, 0.001),
        Piece(series, 0.005, 1, 0.0011),
        Piece(series, math.inf, 1, 4000.0),
    ]
    assert watch.take() == []


def test_what_was_done_together_counts_each_with_its_share() -> None:
    watch = Stopwatch()
    watch.worked("job", "a", "done", 0.02, 50)
    assert [(each.le, each.times, each.seconds) for each in watch.take()] == [(0.025, 50, 1.0)]


def test_a_clock_that_was_set_back_makes_no_time_negative() -> None:
    watch = Stopwatch()
    watch.waited("job", "jobs", [-5.0, 0.3])
    assert sum(each.seconds for each in watch.take()) == 0.3


def test_names_are_bounded() -> None:
    watch = Stopwatch()
    watch.waited("job", "x" * (NAME_LIMIT + 1), [1.0])
    for number in range(SERIES_MOST + 50):
        watch.waited("job", f"queue-{number}", [1.0])
    found = watch.take()
    assert len({each.series for each in found}) <= SERIES_MOST + 1
    assert sum(each.times for each in found) == SERIES_MOST + 51
    assert Series(WAIT, "job", OTHER) in {each.series for each in found}


def test_what_could_not_be_saved_is_put_back() -> None:
    watch = Stopwatch()
    watch.worked("job", "a", "done", 0.3)
    taken = watch.take()
    watch.worked("job", "a", "done", 0.4)
    watch.put_back(taken)
    assert [(each.le, each.times) for each in watch.take()] == [(0.5, 2)]


def test_children_hand_on_to_their_parent() -> None:
    watch = Stopwatch()
    watch.open()
    watch.worked("job", "own", "done", 0.1)
    children = []
    for child in range(3):
        if (pid := os.fork()) == 0:
            watch.forked()
            for _ in range(100):
                watch.worked("visit", "stages.Expire", f"outcome {child} ♥", 0.01)
                watch.hand_on()
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    watch.collect()
    assert {each.series: each.times for each in watch.take()} == {
        Series(WORK, "job", "own", "done"): 1,
        **{Series(WORK, "visit", "stages.Expire", f"outcome {child} ♥"): 100 for child in range(3)},
    }


def test_a_full_pipe_holds_up_nobody_and_loses_nothing() -> None:
    watch = Stopwatch()
    watch.open()
    rounds = 5_000
    for _ in range(rounds):
        watch.worked("job", "t" * NAME_LIMIT, "done", 0.1)
        watch.hand_on()
    watch.collect()
    watch.hand_on()
    watch.collect()
    assert sum(each.times for each in watch.take()) == rounds


def test_without_a_pipe_it_stays() -> None:
    watch = Stopwatch()
    watch.worked("job", "a", "done", 0.1)
    watch.hand_on()
    watch.collect()
    assert [each.times for each in watch.take()] == [1]


def test_a_line_is_written_in_one_piece() -> None:
    watch = Stopwatch()
    watch.open()
    watch.worked("job", "♥" * NAME_LIMIT, "♥" * 200, 0.1)
    watch.hand_on()
    watch.collect()
    (piece,) = watch.take()
    assert (piece.times, piece.le) == (1, 0.1)
    assert tuple(sorted(BOUNDS)) == BOUNDS
