"""What a rule of a known error matches, which one is told, and what it proposes to run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recovery.rules import Action, Broken, Rule, command, known, operation

BROKEN = Broken(17, 3, "charge", "ApiError", "503 of bank-1", "0f3c9a1d5b7e2468")


def rule(name: str = "r", action: Action = Action.NONE, **words: Any) -> Rule:
    return Rule(name, "it says", action, **words)


@pytest.mark.parametrize(
    ("words", "matches"),
    [
        ({"actor": "charge"}, True),
        ({"actor": "charg"}, False),
        ({"type": "ApiError"}, True),
        ({"type": "apierror"}, False),
        ({"fingerprint": BROKEN.fingerprint}, True),
        ({"fingerprint": "0" * 16}, False),
        ({"text": "503"}, True),
        ({"text": "apierror: 503 OF"}, True),
        ({"text": "504"}, False),
        ({"actor": "charge", "text": "bank", "type": "ApiError"}, True),
        ({"actor": "charge", "text": "shop"}, False),
    ],
    ids=str,
)
def test_everything_that_is_given_must_hold(words: dict[str, Any], *, matches: bool) -> None:
    # R10
    assert rule(**words).matches(BROKEN) is matches
    assert known([rule(**words)], BROKEN) == (rule(**words) if matches else None)


def test_the_narrowest_is_told() -> None:
    wide, other = rule("b", actor="charge"), rule("a", type="ApiError")
    narrow = rule("z", actor="charge", type="ApiError", text="503")
    exact = rule("y", fingerprint=BROKEN.fingerprint)
    assert known([wide, other], BROKEN) == other, "of such as ask for the same, the first by name"
    assert known([wide, other, narrow], BROKEN) == narrow
    assert known([exact, narrow, wide], BROKEN) == exact
    assert known([], BROKEN) is None


def again(**words: Any) -> Rule:
    return rule(action=Action.RESTART_TASK, **words)


def test_the_operation_over_all_that_broke_so() -> None:
    # R9, R10
    start = f"tidemill recover operation start restart-task --fingerprint {BROKEN.fingerprint}"
    this = replace(BROKEN, type="ApiError", message="503 from bank-2: try later")
    assert operation(again(actor="charge"), this) == start
    assert operation(again(text="try LATER"), this) == start, "of the same kind all say so"
    assert operation(again(text="ApiError: "), this) == start
    assert operation(again(text="503"), this) == f"{start} --text 503", "another may say 404"
    assert operation(again(text="bank-2"), this) is None, "a search would find what the rule does not match"
    assert operation(again(text="#"), this) is None
    assert operation(rule(action=Action.NONE, actor="charge"), this) is None
    narrowed = operation(rule(action=Action.ABORT, actor="charge"), this, ["--type", "of all"])
    assert narrowed == start.replace("restart-task", "abort") + " --type 'of all'"
    why = replace(again(actor="charge"), parameters={"reason": "it's back"})
    assert operation(why, this) == start + " --reason 'it'\"'\"'s back'"


def test_the_command_that_is_proposed() -> None:
    commands = {each: command(rule(action=each, text="503"), BROKEN) for each in Action}
    assert commands == {
        Action.RESTART_TASK: "tidemill process restart 17 --from 3",
        Action.RESTART: "tidemill process restart 17",
        Action.ABORT: "tidemill process abort 17",
        Action.NONE: None,
    }
    why = replace(rule(action=Action.ABORT, text="503"), parameters={"reason": "it's gone; rm"})
    assert command(why, BROKEN) == "tidemill process abort 17 --reason 'it'\"'\"'s gone; rm'"
