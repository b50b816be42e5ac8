"""`tidemill process restart` with other values, as a copy, and of what must not be called twice; why it stands."""

from __future__ import annotations

import sys

import click
import pytest
from sqlalchemy.orm import Session

from processes import show, start
from tests.kit.cli import Tidemill, one_sentence
from tests.kit.process_kiosk import declare, kiosk_order, work


@pytest.fixture(autouse=True)
def _declared(session: Session, broker_url: str) -> None:
    declare()


def broken() -> int:
    """Task 2, `kiosk_pay`: tasks 3 and 4 wait for it."""
    process_id = start(kiosk_order, "x", "many")
    work()
    return process_id


def test_another_result_and_other_arguments(tidemill: Tidemill) -> None:
    process_id = broken()
    said = tidemill(f"process restart {process_id} --from 2 --dry-run --result", '"paid by hand"')
    assert "  is given its result        1 task: kiosk_pay (task 2)" in said.out.splitlines()
    assert "  called again               2 tasks: kiosk_mail (task 4); kiosk_pack (task 3)" in said.out.splitlines()
    said = tidemill(f"process restart {process_id} --from 2 --yes --copy --result", '"paid by hand"')
    assert said.out.splitlines()[-1].startswith(f"process {process_id + 1} is the copy, 2 tasks again")
    assert tidemill(f"process restart {process_id} --from 2 --yes --arguments", '["x", 100]').code == 0
    work()
    assert (show(process_id + 1).value, show(process_id).value) == (
        "mailed paid by hand packed-x",
        "mailed paid-x packed-x",
    )
    assert f"  copied from      process {process_id}" in tidemill(f"process show {process_id + 1}").out.splitlines()
    assert tidemill(f"process show {process_id} --json").data["copies"] == [process_id + 1]


def test_what_is_not_repeatable_needs_more_than_yes(tidemill: Tidemill, monkeypatch: pytest.MonkeyPatch) -> None:
    process_id = start(kiosk_order, "x")
    work()
    assert tidemill("actor set kiosk_pay repeatable=no").out.splitlines() == [
        "kiosk_pay: repeatable is false, was true"
    ]
    assert "not repeatable" in tidemill("actor list").out
    restart = f"process restart {process_id} --from 2"
    previewed = tidemill(f"{restart} --dry-run")
    assert "! kiosk_pay is not repeatable, and was called: task 2" in previewed.out.splitlines()
    assert tidemill(f"{restart} --dry-run --json").data["not_repeatable"] == {"kiosk_pay": [2]}
    refused = tidemill(f"{restart} --yes")
    assert (refused.code, "Say --repeat" in refused.err) == (2, True)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    asked: list[str] = []

    def confirm(question: str) -> bool:
        asked.append(question)
        return len(asked) == 1

    monkeypatch.setattr(click, "confirm", confirm)
    assert tidemill(restart).code == 1
    assert asked == [f"Restart process {process_id} from task 2?", "Call kiosk_pay again, though not repeatable?"]
    assert show(process_id).state == "FINISHED"
    assert tidemill(f"{restart} --yes --repeat").code == 0


@pytest.mark.parametrize(
    ("words", "more", "code", "told"),
    [
        ("--from 2 --arguments", "not json", 2, "is no JSON"),
        ("--from 2 --arguments", "7", 2, "is no JSON list"),
        ("--from 2 --kwargs", "[7]", 2, "is no JSON object"),
        ("--from 2 --result", "paid", 2, "text is written with quotes"),
        ("--from 2 --result", "NaN", 2, "is no JSON"),
        ("--from 2 --result", f'"{"x" * 2**20}"', 1, "more than 1048576"),
        ("--from 99 --result", "1", 1, "has no task 99"),
        ("--from 3 --result", "1", 1, "waits for task 2"),
        ("--from 2 --kwargs {} --result", "1", 2, "give it no arguments"),
        ("--from 2 --arguments [] --result", "null", 2, "give it no arguments"),
    ],
)
def test_what_cannot_be_is_told(tidemill: Tidemill, words: str, more: str, code: int, told: str) -> None:
    process_id = broken()
    said = tidemill(f"process restart {process_id} --yes {words}", more)
    assert (said.code, told in said.err) == (code, True), said.err
    if code == 1:
        assert one_sentence(said, told)


def test_show_says_why_it_stands(tidemill: Tidemill) -> None:
    process_id = broken()
    lines = tidemill(f"process show {process_id}").out.splitlines()
    assert lines[1].startswith("  stands           task 2: broken: TypeError: '<' not supported")
    assert "; 3 tasks wait for that (for " in lines[1]
    assert lines[2].endswith(f"tidemill process restart {process_id} --from 2")
    [why] = tidemill(f"process show {process_id} --json").data["why"]
    assert why.keys() == {"finding", "says", "next", "since", "queue", "tasks"}
    assert (why["finding"], why["tasks"], why["queue"]) == ("task_broken", [2], None)
