"""`tidemill process` on a real database, and names and values that make no sense, also for `tidemill actor`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import Audit
from processes import show, showing, start
from processes.model import DECISION, PROCESS
from tests.kit.cli import Tidemill, one_sentence, script
from tests.kit.process_kiosk import HOSTILE, declare, kiosk_many, kiosk_order, kiosk_value, work

NUL = "a\x00b"
READING = [
    *("process search", "process search --state broken", "process errors", "process templates", "process show 1"),
    *("actor list", "actor show kiosk_pay", "recover known list"),
]


@pytest.fixture(autouse=True)
def _declared(session: Session, broker_url: str) -> None:
    declare()


def audits(session: Session) -> list[tuple[str, str, str | None]]:
    session.rollback()
    rows = session.execute(sa.select(Audit.action, Audit.subject, Audit.reason).order_by(Audit.id))
    return [(row.action, row.subject, row.reason) for row in rows]


def broken() -> int:
    process_id = start(kiosk_order, "x", "many")
    work()
    return process_id


# Reading


@pytest.mark.parametrize("words", READING)
def test_reading_speaks_to_people_and_programs(tidemill: Tidemill, words: str) -> None:
    start(kiosk_order, "x", "many", custom_id="c", attributes={"shop": "7"})
    for worked in (False, True):
        if worked:
            work()
        said = tidemill(words)
        assert (said.code, said.err) == (0, "")
        assert said.out
        assert "\x1b" not in said.out
        assert isinstance(tidemill(f"{words} --json").data, dict)


def test_show_draws_the_graph(tidemill: Tidemill) -> None:
    process_id = broken()
    lines = tidemill(f"process show {process_id}").out.splitlines()
    assert lines[0] == f"process {process_id}  kiosk_order  BROKEN"
    assert lines[3].startswith("  error            task 2, kiosk_pay: TypeError: '<' not supported")
    assert '  called with      "x", "many"' in lines
    at = lines.index("4 tasks: 2 PENDING, 1 FOLLOWS, 1 BROKEN")
    assert lines[at + 1].startswith("1 kiosk_order FOLLOWS  will have the value of task 4, ")
    assert lines[at + 2].startswith("├─ 2 kiosk_pay BROKEN  broken ")
    assert lines[at + 2].endswith("2 wait for it")
    assert lines[at + 3].startswith("│      ! TypeError: ")
    assert lines[at + 4 : at + 6] == ["├─ 3 kiosk_pack PENDING  waits for 2", "└─ 4 kiosk_mail PENDING  waits for 2, 3"]
    assert "Traceback of task 2, kiosk_pay" in lines


def test_show_as_json_has_everything(tidemill: Tidemill) -> None:
    process_id = start(kiosk_order, "x", -1, custom_id="c", attributes={"shop": "7"})
    work()
    told = tidemill(f"process show {process_id} --json").data
    assert (told["id"], told["state"], told["args"], told["kwargs"]) == (process_id, "FINISHED", ["x", -1], {})
    assert (told["custom_id"], told["attributes"]) == ("c", {"shop": "7"})
    paid = told["tasks"][1]
    assert paid["value"] == {"$failure": {"type": "Declined", "message": "no money for x"}}
    assert (paid["actor"], paid["state"], paid["failed"], paid["sources"]) == ("kiosk_pay", "FINISHED", True, [])
    assert paid["answers"][0]["traceback"].startswith("Traceback")
    assert told["tasks"][3]["args"] == [{"$value": 2}, {"$value": 3}]
    assert told["tasks"][0]["value_of"] == 4


def test_show_folds_what_looks_alike(tidemill: Tidemill) -> None:
    process_id = start(kiosk_many, 40, 6)
    work()
    folded = tidemill(f"process show {process_id}").out
    assert "├─ ×40 kiosk_pack FINISHED  tasks 2–41, " in folded
    assert "└─ ×6 kiosk_break BROKEN  tasks 42–47, " in folded
    assert "for example task 42: KeyError: 'price-0'" in folded
    assert folded.count("Traceback of task") == 1
    assert "(5 more are broken: --answers shows their tracebacks)" in folded
    unfolded = tidemill(f"process show {process_id} --all").out
    assert "├─ 27 kiosk_pack FINISHED" in unfolded
    assert "×" not in unfolded


def test_show_answers(tidemill: Tidemill, session: Session) -> None:
    # P5: what failed and was tried again, what was refused.
    process_id = start(kiosk_order, "late")
    for _ in range(3):
        work()
        session.execute(sa.update(DECISION).values(not_before=None))
        session.commit()
    assert "      ! TimeoutError: no answer from the store" in tidemill(f"process show {process_id}").out
    said = tidemill(f"process show {process_id} --answers").out
    assert said.count("failed: TimeoutError: no answer from the store") == 2
    assert said.count("Traceback of task 3, kiosk_pack") == 3


def test_what_others_wrote_cannot_speak_to_the_terminal(tidemill: Tidemill) -> None:
    for args in ((HOSTILE, -1), (HOSTILE, HOSTILE)):
        start(kiosk_order, *args)
    process_id = start(kiosk_value, {HOSTILE: [HOSTILE, None]}, attributes={"\x1b[2J": "\x07"})
    work()
    for words in ("search", *(f"show {each} --answers" for each in range(1, process_id + 1))):
        said = tidemill(f"process {words}")
        assert said.code == 0
        assert {each for each in said.out if not each.isprintable()} == {"\n"}
    assert tidemill(f"process show {process_id} --json").data["value"] == {HOSTILE: [HOSTILE, None]}


def test_a_process_that_has_not_begun_says_so(tidemill: Tidemill) -> None:
    process_id = start(kiosk_value, 1)
    assert "it has not begun" in tidemill(f"process show {process_id}").out


@pytest.mark.parametrize("columns", ["40", "200"])
def test_show_keeps_to_the_terminal(tidemill: Tidemill, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    process_id = start(kiosk_many, 40, 6)
    work()
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    lines = click.unstyle(tidemill(f"process show {process_id}").out).splitlines()
    graph = [line for line in lines if line.lstrip().startswith(("1 ", "├", "└", "│", "!"))]
    assert len(graph) > 3
    assert all(len(line) <= int(columns) for line in graph)


# Starting


def test_start_prints_the_id(tidemill: Tidemill) -> None:
    said = tidemill(
        "process start kiosk_order o-1 --id c-1 --key k-1 --attribute shop=7 --attribute at=a=b --priority 5"
    )
    assert (said.code, said.err) == (0, "")
    found = show(int(said.out))
    assert (found.custom_id, found.attributes, found.priority) == ("c-1", {"shop": "7", "at": "a=b"}, 5)
    # P2: with the same key, the same process.
    assert tidemill("process start kiosk_order o-1 --key k-1").out == said.out


@pytest.mark.parametrize(
    ("words", "args", "kwargs"),
    [
        (["o-1"], ["o-1"], {}),
        (["17", "-5"], [17, -5], {}),
        (["true", "null"], [True, None], {}),
        (['{"a": [1]}', '"17"'], [{"a": [1]}, "17"], {}),
        (["NaN", "{a"], ["NaN", "{a"], {}),
        (["x", "--kwargs", '{"amount": 3}'], ["x"], {"amount": 3}),
        (['"--json"'], ["--json"], {}),
    ],
    ids=str,
)
def test_arguments_are_json_or_text(tidemill: Tidemill, words: list[str], args: list[Any], kwargs: Any) -> None:
    said = tidemill("process start kiosk_order", *words)
    assert said.err == ""
    told = tidemill(f"process show {int(said.out)} --json").data
    assert (told["args"], told["kwargs"]) == (args, kwargs)


def test_start_and_wait_for_the_end(tidemill: Tidemill, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(process_id: int, timeout: Any) -> Any:
        work()
        return wait(process_id, timeout)

    wait = showing.wait
    monkeypatch.setattr("processes.showing.wait", ended)
    said = tidemill("process start kiosk_value", '{"a  b": "\\u001b\\u202e é"}', "--wait")
    assert said.code == 0
    process_id, value = said.out.splitlines()
    assert int(process_id) > 0
    assert value == '{"a  b": "\\u001b\\u202e é"}'
    said = tidemill("process start kiosk_order x many --wait=5min")
    assert (said.code, int(said.out) > 0) == (1, True)
    assert one_sentence(said, f"process {said.out.strip()} is BROKEN: task 2, kiosk_pay: TypeError")


def test_start_and_wait_in_vain(tidemill: Tidemill) -> None:
    said = tidemill("process start kiosk_value 1 --wait 0")
    assert (said.code, int(said.out) > 0) == (1, True)
    assert one_sentence(said, "is still REGISTERED after 0 s")


# Changing


def test_restart_shows_what_it_does_and_does_it(tidemill: Tidemill, session: Session) -> None:
    process_id = broken()
    said = tidemill(f"process restart {process_id} --from 2 --dry-run")
    assert said.out.splitlines() == [
        f"process {process_id} kiosk_order is BROKEN, 4 tasks",
        "  called again               3 tasks: kiosk_mail (task 4); kiosk_pack (task 3); kiosk_pay (task 2)",
        "  take another value         1 task: kiosk_order (task 1)",
        "Nothing was changed.",
    ]
    planned = tidemill(f"process restart {process_id} --from 2 --dry-run --json").data
    assert planned == {
        "process_id": process_id,
        "name": "kiosk_order",
        "again": [2, 3, 4],
        "follows": [1],
        "forgotten": [],
        "actors": ["kiosk_mail", "kiosk_pack", "kiosk_pay"],
        "given": None,
        "not_repeatable": {},
        "copy": None,
    }
    assert audits(session) == []
    assert show(process_id).state == "BROKEN"
    said = tidemill(f"process restart {process_id} --from 2 --yes --reason", "the price is there now")
    assert said.out.splitlines()[-1] == (
        f"process {process_id} goes on, 3 tasks again: tidemill process show {process_id}"
    )
    assert audits(session) == [("process.restart", str(process_id), "the price is there now")]
    assert show(process_id).state == "ACTIVE"
    assert "restarted by an operator" in tidemill(f"process show {process_id}").out
    whole = tidemill(f"process restart {process_id} --yes").out
    assert "  forgotten, asked for anew  3 tasks: " in whole
    assert len(show(process_id).tasks) == 1
    [found] = tidemill("process search --json").data["processes"]
    assert (found["unfinished"], found["broken"]) == (1, 0)


def test_abort_asks_and_ends(tidemill: Tidemill, session: Session) -> None:
    process_id = start(kiosk_order, "late")
    work()
    said = tidemill(f"process abort {process_id}")
    assert (said.code, said.out) == (2, f"process {process_id} kiosk_order is ACTIVE, 3 of 4 tasks not finished\n")
    assert one_sentence(said, f"Abort process {process_id}? Nobody can be asked here: say --yes")
    assert tidemill(f"process abort {process_id} --yes --reason twice").code == 0
    assert show(process_id).error == "aborted: twice"
    assert audits(session) == [("process.abort", str(process_id), "twice")]
    said = tidemill(f"process abort {process_id} --yes")
    assert (said.code, one_sentence(said, "is ABORTED: only one that goes on can be aborted")) == (1, True)
    assert tidemill(f"process restart {process_id} --yes").code == 0


@pytest.mark.parametrize("words", ["restart", "abort"])
def test_no_is_an_answer(tidemill: Tidemill, session: Session, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    process_id = broken()
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda _question: False)
    said = tidemill(f"process {words} {process_id}")
    assert (said.code, said.out.splitlines()[-1]) == (1, "Nothing was changed.")
    assert (show(process_id).state, audits(session)) == ("BROKEN", [])


def test_what_has_not_begun_is_aborted_but_not_restarted(tidemill: Tidemill) -> None:
    process_id = start(kiosk_value, 1)
    assert one_sentence(tidemill(f"process restart {process_id} --yes"), "has not begun: there is nothing to do again")
    assert tidemill(f"process abort {process_id} --yes").code == 0


# What makes no sense


@pytest.mark.parametrize("process_id", ["404", "0", "9" * 18, "9" * 19, "9" * 5000])
def test_ids_that_there_are_not(tidemill: Tidemill, process_id: str) -> None:
    for words in ("show", "restart", "abort"):
        said = tidemill(f"process {words}", process_id)
        assert (said.code, said.out, one_sentence(said, "there is no process")) == (1, "", True)
        assert len(said.err) < 300


@pytest.mark.parametrize("name", ["", NUL, "kiosk_ordr", "x" * 5000, "'; drop table tidemill.process; --", "\x1b[2J"])
def test_names_that_there_are_not(tidemill: Tidemill, session: Session, name: str) -> None:
    commands = (["process", "start"], ["process", "search", "--type"], ["process", "search", "--actor"])
    for words in (*commands, *(["actor", each] for each in ("show", "block", "unblock"))):
        said = tidemill(*words[:1], *words[1:], name)
        assert (said.code, said.out, one_sentence(said, "there is no ")) == (1, "", True)
        assert len(said.err) < 400
        assert "\x1b" not in said.err
    assert "did you mean kiosk_order?" in tidemill("process start kiosk_ordr").err
    assert session.execute(sa.select(sa.func.count()).select_from(PROCESS)).scalar_one() == 0


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        ("process show", 2, ("Missing argument 'ID'",)),
        ("process show one", 2, ("'one' is no id of a process",)),
        ("process show 1.0", 2, ("'1.0' is no id of a process",)),
        ("process show -1", 2, ()),
        ("process search --state busy", 2, ("'busy' is not one of",)),
        ("process search --attribute shop", 2, ("'shop' must be NAME=VALUE",)),
        ("process search --attribute a=1 --attribute a=2", 2, ("'a' is given twice",)),
        ("process search --limit 0", 2, ("0 is not in the range",)),
        ("process search --since soon", 2, ("'soon' is neither a time",)),
        ("process start", 2, ("Missing argument 'NAME'",)),
        ("process start kiosk_order --kwargs {", 2, ("'{' is no JSON",)),
        ("process start kiosk_order --kwargs [1]", 2, ("is no JSON object",)),
        ("process start kiosk_order --prioriy 5", 2, ("there is no option '--prioriy'",)),
        ("process start kiosk_order x --priority 99999", 2, ("is not in the range",)),
        ("process start kiosk_order x --wait=-3", 2, ("'-3' is no number of seconds",)),
        ("process start kiosk_order x --wait -3", 2, ("'-3' is no number of seconds",)),
        ("process start kiosk_order x --wait soon", 2, ("'soon' is no number of seconds",)),
        ("process start kiosk_order", 1, ("kiosk_order(order: 'str'", "missing a required argument")),
        ("process start kiosk_pay x 1", 1, ("is an actor: a process begins with a decider",)),
        ("process start kiosk_order x --attribute =1", 2, ("must be NAME=VALUE",)),
        ("process restart 1 --from 0", 2, ("0 is not in the range",)),
        ("process restart 1 --json --yes", 2, ("give --dry-run as well",)),
        ("process restart 1 --from 99 --yes", 1, ("process 1 has no task 99",)),
        ("process restart 1 --from 99999999999999999999", 2, ("is not in the range",)),
        ("actor set kiosk_pay", 2, ("Missing argument 'SETTING=VALUE",)),
        ("actor set kiosk_pay work_timeout", 2, ("'work_timeout' must be NAME=VALUE",)),
        ("actor set kiosk_pay retry=1 retry=2", 2, ("'retry' is given twice",)),
        ("actor set kiosk_pay work_timeot=5min", 2, ("there is no setting 'work_timeot': did you mean work_timeout?",)),
        ("actor set kiosk_pay work_timeout=-5min", 2, ("work_timeout: '-5min' is not a duration",)),
        ("actor set kiosk_pay work_timeout=0s", 2, ("work_timeout='0s' must be 100ms or more",)),
        ("actor set kiosk_pay work_timeout=none", 2, ("'none' is not a duration",)),
        ("actor set kiosk_pay retry=0", 2, ("from 1 to 1000",)),
        ("actor set kiosk_pay accept_first=perhaps", 2, ("must be true or false",)),
        ("actor set kiosk_pay max_parallel=-1", 2, ("max_parallel='-1'",)),
        ("actor set kiosk_pay rate_limit=fast", 2, ("'fast' is not a rate",)),
        ("actor set kiosk_ordr retry=1", 1, ("did you mean kiosk_order?",)),
    ],
)
def test_nonsense_is_one_sentence(
    tidemill: Tidemill, session: Session, words: str, code: int, parts: tuple[str, ...]
) -> None:
    process_id = start(kiosk_order, "x", "many")
    work()
    assert process_id == 1
    said = tidemill(words)
    assert (said.code, one_sentence(said, *parts)) == (code, True), said.err
    assert audits(session) == []
    assert session.execute(sa.select(sa.func.count()).select_from(PROCESS)).scalar_one() == 1


def test_as_a_program(env: dict[str, str]) -> None:
    said = script("process start kiosk_value 1 --id c-1", env)
    assert (said.code, said.err) == (0, "")
    found = script("process search --json", env)
    assert [each["custom_id"] for each in json.loads(found.out)["processes"]] == ["c-1"]
    assert script(f"process show {said.out.strip()}", env | {"PYTHONIOENCODING": "utf-8"}).code == 0
