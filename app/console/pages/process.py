"""One process: why it stands, its graph, its tasks and errors; restarting and aborting it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.console.pages.picture import Picture, picture, state_of, state_word, took
from app.console.web.memory import RememberedBy
from app.console.web.page import REASON, Act, Done, Input, Page, Question, Visit
from app.errors import BadRequest
from app.words import several, span
from processes import operate, showing
from processes.drawing import draw
from processes.operate import Restarted
from processes.overriding import read_json
from processes.shown import Shown, TaskShown
from processes.states import ENDED, DecisionState, ProcessState, TaskState
from processes.telling import called_with, stored_text
from processes.wording import listed
from recovery import known, why
from recovery.explaining import Reason, told
from recovery.rules import Broken, Rule
from recovery.rules import known as first_known

SECONDS = 1.0
#: Of each task: the latest attempts; of a value: characters.
ANSWERS, TEXT = 3, 2_000
TASKS, BROKEN, REASONS = 100, 20, 6
NUMBERS = 2**31 - 1
#: One with more tasks is not read as a whole.
WHOLE_MOST = 1_000


@dataclass(frozen=True)
class Seen:
    """`count`: of its tasks; of more than `WHOLE_MOST`, `shown` has some."""

    shown: Shown
    count: int
    counts: Sequence[tuple[str, int]]
    reasons: Sequence[Reason]
    rules: Sequence[Rule]
    picture: Picture | None
    text: str | None


def _load(wanted: tuple[int, int]) -> Seen:
    """Of a process; of one with very many tasks those behind a number."""
    process_id, after = wanted
    with showing.one_moment() as session:
        count, rules = showing.size(session, process_id), known.listed(session)
        part = showing.Part(after, TASKS + 1, BROKEN + 1) if count > WHOLE_MOST else None
        shown = showing.load(session, process_id, answers=ANSWERS, text=TEXT, part=part)
        counts = _counts(showing.counts(session, process_id))
        if part is not None:
            return Seen(shown, count, counts, (), rules, None, None)
        reasons = why.stands(session, shown, span)
    lines = "\n".join(each.text for each in draw(shown, span, width=120))
    return Seen(shown, count, counts, reasons, rules, picture(shown), lines)


_seen = RememberedBy(_load, SECONDS).kept()


def _shown(visit: Visit) -> Mapping[str, Any]:
    after = visit.query.number("after", 0, NUMBERS) or 0
    seen = _seen.get((visit.numbers["process_id"], after))
    shown = seen.shown
    tasks = [each for each in shown.tasks if each.number > after]
    broken = [each for each in shown.tasks if each.broken is not None]
    return {
        "shown": shown,
        "reasons": [(told(each), each) for each in seen.reasons[:REASONS]],
        "more_reasons": max(0, len(seen.reasons) - REASONS),
        "picture": seen.picture,
        "text": seen.text,
        "called": called_with(shown.arguments),
        "value": stored_text(shown.result, TEXT) if shown.state is ProcessState.FINISHED else None,
        "tasks": [_row(each) for each in tasks[:TASKS]],
        "next": tasks[TASKS - 1].number if len(tasks) > TASKS else None,
        "count": seen.count,
        "counts": seen.counts,
        "broken": [(each, _rule(shown, each, seen.rules)) for each in broken[:BROKEN]],
        "more_broken": max(0, len(broken) - BROKEN),
        "can_abort": shown.state not in ENDED,
        "can_restart": shown.state is not ProcessState.REGISTERED,
    }


def _row(task: TaskShown) -> dict[str, Any]:
    value = stored_text(task.result, 200) if task.result is not None else None
    words = {"task": task, "state": state_of(task), "took": took(task), "value": value}
    return words | {"sources": listed(task.sources), "called": called_with(task.arguments)}


def _counts(found: Mapping[tuple[TaskState, DecisionState | None], int]) -> list[tuple[str, int]]:
    told: dict[str, int] = {}
    for (state, decision), count in found.items():
        word = state_word(state, decision)
        told[word] = told.get(word, 0) + count
    return sorted(told.items(), key=lambda pair: -pair[1])


def _rule(shown: Shown, task: TaskShown, rules: Sequence[Rule]) -> Rule | None:
    if task.broken is None:
        return None
    of = (task.actor, task.broken.type, task.broken.message, task.broken.fingerprint)
    return first_known(rules, Broken(shown.id, task.number, *of))


def _address(process_id: int) -> str:
    return f"/processes/{process_id}"


def _standing(process_id: int) -> Shown:
    with showing.one_moment() as session:
        return showing.load(session, process_id, answers=0, text=0)


def _ask_abort(visit: Visit) -> Question:
    number = visit.numbers["process_id"]
    found = _standing(number)
    left = sum(task.state is not TaskState.FINISHED for task in found.tasks)
    says = [
        f"Process {number} is {found.state}; {left} of {several(len(found.tasks), 'task')} have not finished.",
        "Nothing more of it is handed out, and no answer is taken; what is in work is not stopped. "
        "A restart lets it go on.",
    ]
    ended = f"It is {found.state}: only one that goes on can be aborted." if found.state in ENDED else None
    title = f"Abort process {number}?"
    return Question(title, says, "Abort it", [REASON], danger=True, obstacle=ended, back=_address(number))


def _abort(visit: Visit) -> Done:
    number = visit.numbers["process_id"]
    operate.abort(number, reason=visit.form.text("reason"))
    return Done(f"Process {number} is aborted. A restart lets it go on.", _address(number))


def _from(visit: Visit) -> int | None:
    """The task from which it is done again; None: from the start."""
    return visit.query.number("from", 1, NUMBERS)


def _ask_restart(visit: Visit) -> Question:
    number, task = visit.numbers["process_id"], _from(visit)
    found = _standing(number)
    title = f"Restart process {number}{'' if task is None else f' from task {task}'}?"
    if found.state is ProcessState.REGISTERED:
        obstacle = "It has not begun: there is nothing to do again."
        return Question(title, [], "Restart", obstacle=obstacle, back=_address(number))
    try:
        planned = operate.preview(number, task)
    except BadRequest as error:
        return Question(title, [], "Restart", obstacle=f"{error}.", back=_address(number))
    inputs = [
        *(() if task is None else _instead(number, task)),
        Input("copy", "In a new process, which keeps the results; this one stays as it is", kind="checkbox"),
        REASON,
    ]
    if planned.not_repeatable:
        inputs.insert(0, Input("repeat", "Call again what is not repeatable: that is meant", kind="checkbox"))
    return Question(
        title,
        [f"It is {found.state}. Answers to what was handed out before do not count any more."],
        "Restart it",
        inputs,
        danger=True,
        back=_address(number),
        more={"plan": _plan(found, planned), "not_repeatable": _names(planned.not_repeatable)},
    )


def _instead(process_id: int, number: int) -> list[Input]:
    """With what else the task may be called, or what it shall have come to."""
    with showing.one_moment() as session:
        found = showing.load(session, process_id, answers=0, part=showing.Part(number - 1, 1))
    task = next((each for each in found.tasks if each.number == number), None)
    now = "" if task is None else f" It was called with {called_with(task.arguments):.300}."
    mark = 'as JSON; {"$value": 2} is the value of task 2.'
    return [
        Input("args", "Other arguments", hint=f"A list, {mark}{now}"),
        Input("kwargs", "Other named arguments", hint=f"An object, {mark}"),
        Input("result", "What it came to", hint='As JSON, such as {"paid": true}: it is not called then.'),
    ]


def _given(visit: Visit) -> dict[str, Any]:
    """Of these, what was written."""
    found: dict[str, Any] = {}
    for word in ("args", "kwargs", "result"):
        if (text := visit.form.text(word)) is not None:
            try:
                found[word] = read_json(text)
            except ValueError as error:
                told = f"{word}={text!r:.100} is no JSON: {error!s:.200}"
                raise BadRequest(f"{told}; text is written with quotes") from None
    if found and _from(visit) is None:
        raise BadRequest("other arguments are for one task: restart from a task")
    return found


def _plan(found: Shown, planned: Restarted) -> list[tuple[str, int, str]]:
    """What becomes of the tasks: a word, how many, and which by actor."""
    actors = {task.number: task.actor for task in found.tasks}
    groups = (
        ("called again", planned.again),
        ("take another value", planned.follows),
        ("forgotten, and asked for anew", planned.forgotten),
    )
    rows = [(words, len(numbers), _by_actor(actors, numbers)) for words, numbers in groups if numbers]
    kept = sorted(actors.keys() - {*planned.again, *planned.follows, *planned.forgotten})
    return [*rows, ("stay as they are", len(kept), _by_actor(actors, kept))] if kept else rows


def _by_actor(actors: Mapping[int, str], numbers: Sequence[int]) -> str:
    of: dict[str, list[int]] = {}
    for number in numbers:
        of.setdefault(actors.get(number, "?"), []).append(number)
    return "; ".join(f"{name} (task {listed(each)})" for name, each in sorted(of.items()))


def _names(not_repeatable: Mapping[str, Sequence[int]]) -> list[str]:
    return [f"{name} (task {listed(numbers)})" for name, numbers in not_repeatable.items()]


def _restart(visit: Visit) -> Done:
    number, copy = visit.numbers["process_id"], visit.form.flag("copy")
    repeat, reason = visit.form.flag("repeat"), visit.form.text("reason")
    done = operate.restart(number, _from(visit), copy=copy, repeat=repeat, reason=reason, **_given(visit))
    again = f"{several(len(done.again), 'task')} again"
    if done.copy is not None:
        return Done(f"Process {done.copy} is the copy of {number}: {again}.", _address(done.copy))
    return Done(f"Process {number} goes on: {again}.", _address(number))


PAGES = (Page("process", "/processes/{process_id}", "process.html", _shown),)
ACTS = (
    Act("abort_process", "/processes/{process_id}/abort", _ask_abort, _abort),
    Act("restart_process", "/processes/{process_id}/restart", _ask_restart, _restart, "process_restart.html"),
)
