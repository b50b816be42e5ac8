"""The graph of a process as text: golden pictures, folds, widths, and texts that hold anything."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.cli.output import span
from processes.drawing import LINES_MOST, Level, draw
from processes.fingerprint import kind_of
from processes.shown import AnswerShown, BrokenShown, Shown, TaskShown
from processes.states import DecisionState, ProcessState, TaskState
from processes.wording import clean, cut, listed, wide

AT = datetime(2030, 7, 1, 12, tzinfo=UTC)
FINISHED, READY, PENDING, BROKEN = TaskState.FINISHED, TaskState.READY, TaskState.PENDING, TaskState.BROKEN
EMPTY = '{"args":[],"kwargs":{}}'


def ago(seconds: float) -> datetime:
    return AT - timedelta(seconds=seconds)


def task(number: int, actor: str, state: TaskState = FINISHED, **more: Any) -> TaskShown:
    words: dict[str, Any] = {"created_by": None if number == 1 else 1}
    if state is FINISHED:
        words |= {"ready_at": ago(60), "claimed_at": ago(58), "ended_at": ago(53), "attempts": 1, "result": "null"}
    return TaskShown(number, actor, state, EMPTY, ago(70), **words | more)


def shown(tasks: Iterable[TaskShown]) -> Shown:
    words: dict[str, Any] = dict.fromkeys(("error", "custom_id", "idempotency_key", "result", "ended_at"))
    words |= {"begun_at": None, "deadline_at": None}
    return Shown(
        id=1,
        name="fulfil",
        state=ProcessState.ACTIVE,
        priority=0,
        attributes={},
        arguments=EMPTY,
        registered_at=ago(80),
        at=AT,
        tasks=tuple(tasks),
        **words,
    )


def drawn(*tasks: TaskShown, **how: Any) -> list[str]:
    return [line.text for line in draw(shown(tasks), span, **how)]


def test_who_asked_for_whom_and_who_waits_for_whom() -> None:
    # P1, P8: a decider whose value is that of a task, promises as values, and what waits.
    decided = {"ready_at": ago(60), "claimed_at": ago(58), "decided_at": ago(57), "attempts": 1}
    assert drawn(
        task(1, "fulfil", TaskState.FOLLOWS, value_of=4, **decided),
        task(2, "charge", result='"tr-1"'),
        task(3, "ship", READY, sources=(2,), decision=DecisionState.WORK, worker="w@a/1", claimed_at=ago(12)),
        task(4, "notify", PENDING, sources=(2, 3)),
    ) == [
        "1 fulfil FOLLOWS  will have the value of task 4, waited 2s, worked 1s",
        '├─ 2 charge FINISHED  value "tr-1", waited 2s, worked 5s',
        "├─ 3 ship READY  after 2, in work for 12s, by w@a/1",
        "└─ 4 notify PENDING  after 2, waits for 3",
    ]


def test_deciders_below_deciders() -> None:
    assert drawn(
        task(1, "all", value_of=3, result=None),
        task(2, "part", value_of=3, result=None),
        task(3, "step", created_by=2, result="7"),
        task(4, "step", sources=(3,), failed=True, result='{"$failure":{"type":"Declined","message":"no"}}'),
    ) == [
        "1 all FINISHED  has the value of task 3, waited 2s, worked 5s",
        "├─ 2 part FINISHED  has the value of task 3, waited 2s, worked 5s",
        "│  └─ 3 step FINISHED  value 7, waited 2s, worked 5s",
        "└─ 4 step FINISHED  accepted failure: Declined: no, after 3, waited 2s, worked 5s",
    ]


def test_what_waits_for_its_turn_says_until_when() -> None:
    waits: dict[str, Any] = {"decision": DecisionState.QUEUED}
    assert drawn(
        task(1, "fulfil"),
        task(2, "queued", READY, due_at=ago(3), deadline_at=ago(-240), **waits),
        task(3, "delayed", READY, due_at=ago(-90), **waits),
        task(4, "failed", READY, due_at=ago(-8), failures=2, restarts=1, attempts=3, error="E: no", **waits),
        task(5, "late", READY, decision=DecisionState.WORK, claimed_at=ago(70), until=ago(10), deadline_at=ago(5)),
    )[1:] == [
        "├─ 2 queued READY  queued for 3s, its time is over in 4min",
        "├─ 3 delayed READY  begins in 1min 30s",
        "├─ 4 failed READY  next try in 8s, handed out 3 times, failed 2 times, no answer in time once",
        "│      ! E: no",
        "└─ 5 late READY  in work for 1min 10s, answer due since 10s, its time is over since 5s",
    ]


def test_what_is_broken_says_why_and_what_came_before() -> None:
    # P5, P9: failed attempts and refused answers, the error that broke it once.
    answers = (
        AnswerShown(ago(40), "w@a/1", None, "KeyError: 'a'"),
        AnswerShown(ago(30), "w@b/2", "a late failure", "KeyError: 'b'"),
        AnswerShown(ago(25), None, "the task has finished already", None),
        AnswerShown(ago(20), "w@a/1", None, "KeyError: 'c'"),
    )
    broken = BrokenShown(ago(20), "KeyError", "'c'", None)
    lines = draw(
        shown(
            [
                task(1, "fulfil"),
                task(2, "charge", BROKEN, broken=broken, answers=answers, answered=9, epoch=2),
                task(3, "ship", PENDING, sources=(2,)),
            ]
        ),
        span,
    )
    assert [line.text for line in lines[1:]] == [
        "├─ 2 charge BROKEN  broken 20s ago, 1 waits for it, restarted by an operator 2 times",
        "│      · 5 earlier answers: --answers",
        "│      · 40s ago by w@a/1: failed: KeyError: 'a'",
        "│      · 30s ago by w@b/2: refused, a late failure: KeyError: 'b'",
        "│      · 25s ago: refused, the task has finished already: a result",
        "│      ! KeyError: 'c'",
        "└─ 3 ship PENDING  waits for 2",
    ]
    levels = [line.level for line in lines]
    assert (levels[1], levels[2], levels[6]) == (Level.BAD, Level.PLAIN, Level.BAD)


def test_the_failure_that_broke_a_task_is_one_more_than_the_tries_again() -> None:
    broken = BrokenShown(ago(20), "KeyError", "'c'", None)
    lines = drawn(
        task(1, "fulfil"),
        task(2, "charge", BROKEN, broken=broken, attempts=5, failures=4),
        task(3, "ship", BROKEN, broken=broken, attempts=2, failures=1),
    )
    assert lines[1] == "├─ 2 charge BROKEN  broken 20s ago, handed out 5 times, tried again 4 times"
    assert lines[3] == "└─ 3 ship BROKEN  broken 20s ago, handed out 2 times, tried again once"


def crowd() -> list[TaskShown]:
    many = [task(number, "ship", ended_at=ago(53 - number % 3)) for number in range(2, 1000)]
    broken = [
        task(number, "label", BROKEN, broken=BrokenShown(ago(9), "KeyError", f"'o-{number}'"))
        for number in range(1000, 1010)
    ]
    return [task(1, "fulfil"), *many, *broken, task(1010, "end", PENDING, sources=tuple(range(2, 1010)))]


def test_what_looks_alike_is_one_line() -> None:
    assert drawn(*crowd()) == [
        "1 fulfil FINISHED  waited 2s, worked 5s",
        "├─ ×998 ship FINISHED  tasks 2–999, waited up to 2s, worked up to 7s",
        "├─ ×10 label BROKEN  tasks 1000–1009, broken 9s ago, 10 wait for them",
        "│      ! for example task 1000: KeyError: 'o-1000'",
        "└─ 1010 end PENDING  after 2–999, waits for 1000–1009",
    ]


def test_unfolded_each_has_its_line() -> None:
    lines = drawn(*crowd(), unfold=True)
    assert len(lines) == 1010 + 10
    assert "├─ 500 ship FINISHED  waited 2s, worked 7s" in lines


def test_few_stay_apart_and_so_does_what_differs() -> None:
    few = [task(1, "fulfil"), *(task(number, "ship") for number in range(2, 6))]
    assert len(drawn(*few)) == 5
    tried = task(7, "ship", answered=1, answers=(AnswerShown(ago(5), None, None, "E"),))
    lines = drawn(*few, task(6, "ship"), tried)
    assert lines[1].startswith("├─ ×5 ship FINISHED  tasks 2–6")
    assert lines[2:] == ["└─ 7 ship FINISHED  waited 2s, worked 5s", "       · 5s ago: failed: E"]


def test_deciders_that_look_alike_are_folded_with_what_is_below_them() -> None:
    tasks = [task(1, "all")]
    for i in range(50):
        first = 2 + 3 * i
        tasks += [task(first, "part"), *(task(first + each, "step", created_by=first) for each in (1, 2))]
    assert drawn(*tasks) == [
        "1 all FINISHED  waited 2s, worked 5s",
        "└─ ×50 part FINISHED  tasks 2, 5, 8, 11, 14, …, waited up to 2s, worked up to 5s, "
        "below: what task 2 asked for",
        "   ├─ 3 step FINISHED  waited 2s, worked 5s",
        "   └─ 4 step FINISHED  waited 2s, worked 5s",
    ]


def test_a_long_chain_neither_runs_out_of_the_page_nor_hides_its_end() -> None:
    # A decider that asks for itself again and again: no recursion, no endless indentation.
    chain = [task(number, "poll", created_by=number - 1 or None) for number in range(1, 5001)]
    last = task(5001, "poll", READY, created_by=5000, decision=DecisionState.WORK, claimed_at=ago(2))
    lines = drawn(*chain, last)
    assert LINES_MOST < len(lines) < LINES_MOST + 10
    assert max(map(len, lines)) < 120
    assert "asked for by 399" in lines[399]
    assert lines[-2:] == [
        f"… and {5001 - LINES_MOST} more tasks: --all shows them",
        "5001 poll READY  in work for 2s",
    ]
    assert len(drawn(*chain, last, unfold=True)) == 5001


@pytest.mark.parametrize("width", [1, 20, 33, 60, 79, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    tasks = [*crowd(), task(1011, "作業" * 20, result='"' + "値" * 500 + '"'), task(1012, "e\u0301" * 30)]
    tasks += [task(1013 + i, "deep", created_by=1012 + i) for i in range(40)]
    lines = drawn(*tasks, width=width)
    assert max(map(wide, lines)) <= max(width, 20)
    assert "".join(lines).count("×998") == 1


def test_what_does_not_fit_goes_on_below() -> None:
    tasks = [task(1, "fulfil"), task(2, "charge", result='"tr-1"'), task(3, "ship", sources=(2,))]
    assert drawn(*tasks, width=40) == [
        "1 fulfil FINISHED  waited 2s, worked 5s",
        '├─ 2 charge FINISHED  value "tr-1",',
        "│        waited 2s, worked 5s",
        "└─ 3 ship FINISHED  after 2, waited 2s,",
        "         worked 5s",
    ]


HOSTILE = "first\nsecond\r\x1b[31mred\x1b[0m\x07\x00\u202egnp.exe\u2028\x9b2J \ud800 end"


def test_texts_write_nothing_but_themselves() -> None:
    broken = BrokenShown(ago(5), "E\x1b[2J", HOSTILE)
    answers = (AnswerShown(ago(9), HOSTILE, HOSTILE, HOSTILE), AnswerShown(ago(5), HOSTILE, None, "other"))
    lines = drawn(
        task(1, HOSTILE, READY, decision=DecisionState.WORK, worker=HOSTILE, claimed_at=ago(3)),
        task(2, "x", BROKEN, broken=broken, answers=answers, answered=2),
        task(3, "x", result=HOSTILE, sources=(99,)),
        task(4, "x", result=HOSTILE, failed=True),
        task(5, "x", READY, decision=DecisionState.QUEUED, error=HOSTILE),
    )
    assert all(line.isprintable() for line in lines), lines
    assert "\\x1b[31mred" in lines[0]


@pytest.mark.parametrize(
    "tasks",
    [
        [],
        [task(5, "orphan", created_by=3)],
        [task(2, "own", created_by=2)],
        [task(1, "later", created_by=7), task(7, "x", created_by=1)],
        [task(1, "x", BROKEN)],
        [task(1, "x", READY)],
        [task(1, "x", ready_at=None, claimed_at=None, ended_at=None)],
        [task(1, "x", claimed_at=ago(-5), ended_at=ago(9))],
        [task(1, "x", failed=True, result="[" * 9000)],
    ],
    ids=lambda tasks: tasks[0].actor if tasks else "nothing",
)
def test_rows_that_make_no_sense_are_drawn_anyhow(tasks: list[TaskShown]) -> None:
    assert len(drawn(*tasks)) == len(tasks)


# Words


def test_long_texts_are_cut() -> None:
    assert clean("a  b\tc\n") == "a b c"
    assert clean("x" * 10_000_000, 5) == "xxxx…"
    assert clean(" " * 10_000_000, 5) == "…"
    assert len(clean("\x00" * 100, 50)) == 50
    assert (cut("値値値", 5), cut("abc", None), cut("abcd", 3)) == ("値値…", "abc", "ab…")


def test_numbers_are_listed_in_rows() -> None:
    assert listed([1, 2]) == "1, 2"
    assert listed([9, 2, 3, 4]) == "2–4, 9"
    assert listed(list(range(0, 40, 2))) == "0, 2, 4, 6, 8, …"


def test_errors_of_one_kind() -> None:
    kinds = {kind_of(error) for error in ("KeyError: 'a'", "KeyError: 'b'", 'KeyError: "c"')}
    assert len(kinds) == 1
    assert kind_of("503 for 17 of 3f9c01aa-11") == kind_of("503 for 18 of 90be77d2-12") != kind_of("504 from 17")


def test_values_are_read_when_they_are_asked_for() -> None:
    found = TaskShown(
        1, "x", FINISHED, '{"args":[1,{"$value":2}],"kwargs":{"a":null}}', AT, result='{"$plain":{"$a":1}}'
    )
    assert (found.args, found.kwargs, found.value) == ([1, {"$value": 2}], {"a": None}, {"$a": 1})
