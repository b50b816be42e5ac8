"""What an operator may set of an actor, as values or as text from a terminal."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.errors import BadRequest
from processes import Retry
from processes.checks import OF_QUEUE, checked_settings
from processes.definition import OF_PROCESSES, SETTINGS

GOOD: dict[str, list[tuple[Any, Any]]] = {
    "accept_first": [("true", True), ("OFF", False), (False, False)],
    "work_timeout": [("5min", timedelta(minutes=5)), (2, timedelta(seconds=2))],
    "restart_after_work_timeout": [("no", False)],
    "max_restarts": [("0", 0), (1000, 1000)],
    "task_timeout": [("none", None), ("0", None), ("1h", timedelta(hours=1)), (None, None)],
    "force_finish_after_task_timeout": [("1", True)],
    "retry": [("3", Retry(3).words()), (Retry(2), Retry(2).words())],
    "fail_types": [("Gone, Away", ["Gone", "Away"]), ("", []), ([ValueError], ["ValueError"])],
    "repeatable": [("no", False), (True, True)],
    "process_timeout": [("off", None), ("1d", timedelta(days=1))],
    "idle_process_timeout": [("1s", timedelta(seconds=1))],
    "retention": [("0s", timedelta(0))],
    "when_inconsistent": [("restart", "restart")],
    "blocked": [("yes", True)],
    "max_parallel": [("4", 4), ("none", None)],
    "rate_limit": [("10/s", "10/s"), ("off", None)],
}
WRONG: dict[str, list[Any]] = {
    "accept_first": ["maybe", 1, None],
    "work_timeout": ["0s", "10ms", "soon", None],
    "restart_after_work_timeout": [""],
    "max_restarts": ["-1", 1001, "many", True],
    "task_timeout": ["10ms", "-1s", "later"],
    "force_finish_after_task_timeout": [2],
    "retry": ["0", "often", 1.5, True],
    "fail_types": [5, [int]],
    "repeatable": ["once", None],
    "process_timeout": ["10ms"],
    "idle_process_timeout": ["100ms"],
    "retention": ["-1s", None],
    "when_inconsistent": ["ignore", None],
    "blocked": ["perhaps"],
    "max_parallel": ["0", -1, "1.5"],
    "rate_limit": ["fast", "0/s"],
}


def test_every_setting_is_tried() -> None:
    assert GOOD.keys() == WRONG.keys() == {*SETTINGS, *OF_QUEUE}


@pytest.mark.parametrize(("word", "given", "stored"), [(word, *each) for word, of in GOOD.items() for each in of])
def test_a_setting_is_stored_as_the_code_would_say_it(word: str, given: Any, stored: Any) -> None:
    # P6, P7
    assert checked_settings("x", {word: given}, decider=True) == {word: stored}


@pytest.mark.parametrize(("word", "given"), [(word, each) for word, of in WRONG.items() for each in of])
def test_a_setting_that_cannot_be_is_refused(word: str, given: Any) -> None:
    with pytest.raises(BadRequest, match="x"):
        checked_settings("x", {word: given}, decider=True)


def test_a_setting_that_there_is_not_is_told_with_one_that_is_near() -> None:
    with pytest.raises(BadRequest, match="did you mean work_timeout"):
        checked_settings("x", {"work_time_out": "5min"}, decider=False)
    with pytest.raises(BadRequest, match="name at least one setting"):
        checked_settings("x", {}, decider=False)


@pytest.mark.parametrize("word", OF_PROCESSES)
def test_an_actor_has_no_settings_of_processes(word: str) -> None:
    # P7
    with pytest.raises(BadRequest, match=f"x is an actor: {word} is a setting of the decider"):
        checked_settings("x", {word: GOOD[word][0][0]}, decider=False)


def test_what_is_like_no_setting_is_told_with_how_many_there_are() -> None:
    for decider, more in ((True, 6), (False, 2)):
        with pytest.raises(BadRequest, match=f"there is accept_first, blocked, .* … and {more} more"):
            checked_settings("x", {"bogus": 1}, decider=decider)
