"""What is said of the tasks of a process, in words. Pure."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from processes.arguments import FAILURE
from processes.shown import TaskShown
from processes.states import DecisionState, TaskState

Span = Callable[[timedelta], str]

LINE, VALUE = 300, 80
NUMBERS_MOST = 5


def clean(text: str, most: int = LINE) -> str:
    """On one line, not longer than this, and with nothing that a terminal would obey."""
    # What is cut anyway is not worth going through.
    flat = " ".join(text[: most * 8].split())
    safe = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in flat)
    return safe if len(safe) <= most and len(text) <= most * 8 else f"{safe[: most - 1]}…"


def wide(text: str) -> int:
    """How many columns of a terminal it takes."""
    return len(text) if text.isascii() else sum(_columns(each) for each in text)


def _columns(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, width: int | None) -> str:
    if width is None or wide(text) <= width:
        return text
    room, kept = width - 1, []
    for letter in text:
        room -= _columns(letter)
        if room < 0:
            break
        kept.append(letter)
    return "".join(kept) + "…"


def listed(numbers: Sequence[int]) -> str:
    """Of tasks; rows of them as one.

    >>> listed([2, 3, 4, 7]), listed([])
    ('2–4, 7', '')
    """
    rows: list[list[int]] = []
    for number in sorted(numbers):
        if rows and number == rows[-1][1] + 1:
            rows[-1][1] = number
        else:
            rows.append([number, number])
    words = [str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}–{b}" for a, b in rows[:NUMBERS_MOST]]
    return ", ".join([*words, "…"] if len(rows) > NUMBERS_MOST else words)


def parts_of(
    tasks: Sequence[TaskShown],
    at: datetime,
    states: Mapping[int, TaskState],
    waiting: Mapping[int, int],
    span: Span,
) -> list[str]:
    """How it is with tasks that look alike; of several, the longest times."""
    task, some = tasks[0], "" if len(tasks) == 1 else "up to "
    found = [*_values(tasks), *_sources(tasks, states)]
    match task.state:
        case TaskState.FINISHED | TaskState.FOLLOWS:
            found += _times(tasks, at, span, some)
        case TaskState.READY if task.decision is DecisionState.WORK:
            found += _in_work(tasks, at, span, some)
        case TaskState.READY:
            found += _queued(tasks, at, span, some)
        case TaskState.BROKEN if task.broken is not None:
            found.append(f"broken {span(at - min(each.broken.at for each in tasks if each.broken))} ago")
            found += _held_up(tasks, waiting)
        case _:
            pass
    found += _tries(tasks)
    if task.state is TaskState.READY and (ends := [each.deadline_at for each in tasks if each.deadline_at]):
        found.append(_ahead("its time is over", min(ends) - at, span))
    return found


def _values(tasks: Sequence[TaskShown]) -> Iterator[str]:
    task = tasks[0]
    if task.value_of is not None:
        # A promise that is the value.
        numbers = listed(sorted({each.value_of for each in tasks if each.value_of is not None}))
        verb = "will have" if task.state is TaskState.FOLLOWS else "has"
        yield f"{verb} the value of task {numbers}" if len(tasks) == 1 else f"{verb} the values of tasks {numbers}"
    elif task.state is TaskState.FINISHED and task.failed:
        yield f"accepted failure: {_failure(task.result)}"
    elif task.state is TaskState.FINISHED and task.result not in (None, "null") and len(tasks) == 1:
        yield f"value {clean(str(task.result), VALUE)}"


def _failure(text: str | None) -> str:
    try:
        found = json.loads(text or "null")[FAILURE]
        return clean(f"{found['type']}: {found['message']}", VALUE)
    except (ValueError, KeyError, TypeError, RecursionError):
        return clean(text or "", VALUE)


def _sources(tasks: Sequence[TaskShown], states: Mapping[int, TaskState]) -> Iterator[str]:
    sources = {source for task in tasks for source in task.sources}
    over = [each for each in sources if states.get(each) is TaskState.FINISHED]
    left = sources.difference(over)
    if over:
        yield f"after {listed(over)}"
    if left:
        yield f"{'wait' if len(tasks) > 1 else 'waits'} for {listed(sorted(left))}"


def _times(tasks: Sequence[TaskShown], at: datetime, span: Span, some: str) -> Iterator[str]:
    """From ready to handed out, and from there to the answer."""
    waited = [_since(each.ready_at, each.claimed_at) for each in tasks if each.attempts == 1]
    worked = [_since(each.claimed_at, each.decided_at or each.ended_at) for each in tasks if each.attempts == 1]
    took = [_since(each.ready_at, each.decided_at or each.ended_at or at) for each in tasks if each.attempts > 1]
    for word, spans in (("waited", waited), ("worked", worked), ("took", took)):
        if known := [each for each in spans if each is not None]:
            yield f"{word} {some}{span(max(known))}"


def _since(first: datetime | None, last: datetime | None) -> timedelta | None:
    if first is None or last is None:
        return None
    return max(last - first, timedelta(0))


def _in_work(tasks: Sequence[TaskShown], at: datetime, span: Span, some: str) -> Iterator[str]:
    if begun := [each.claimed_at for each in tasks if each.claimed_at]:
        yield f"in work for {some}{span(max(at - min(begun), timedelta(0)))}"
    workers = sorted({each.worker for each in tasks if each.worker})
    if workers:
        yield f"by {clean(workers[0], 100)}" + (f" and {len(workers) - 1} more" if len(workers) > 1 else "")
    if ends := [each.until for each in tasks if each.until]:
        yield _ahead("answer due", min(ends) - at, span)


def _queued(tasks: Sequence[TaskShown], at: datetime, span: Span, some: str) -> Iterator[str]:
    task = tasks[0]
    due = [each.due_at for each in tasks if each.due_at]
    if due and min(due) > at:
        yield f"{'next try' if task.failures or task.restarts else 'begins'} in {span(min(due) - at)}"
    elif due:
        yield f"queued for {some}{span(at - min(due))}"


def _ahead(what: str, left: timedelta, span: Span) -> str:
    return f"{what} in {span(left)}" if left > timedelta(0) else f"{what} since {span(-left)}"


def _held_up(tasks: Sequence[TaskShown], waiting: Mapping[int, int]) -> Iterator[str]:
    if count := sum(waiting.get(each.number, 0) for each in tasks):
        yield f"{count} wait for {'them' if len(tasks) > 1 else 'it'}" if count > 1 else "1 waits for it"


def _tries(tasks: Sequence[TaskShown]) -> Iterator[str]:
    some = "up to " if len(tasks) > 1 else ""
    # A failure is counted when the task goes back into the queue, so the one that broke it is not among them.
    broken = tasks[0].broken is not None
    failed = ("tried again once", "tried again {} times") if broken else ("failed once", "failed {} times")
    for most, one, several in (
        (max(each.attempts for each in tasks), None, "handed out {} times"),
        (max(each.failures for each in tasks), *failed),
        (max(each.restarts for each in tasks), "no answer in time once", "no answer in time {} times"),
        (max(each.epoch for each in tasks), "restarted by an operator", "restarted by an operator {} times"),
    ):
        if most > 1:
            yield several.format(f"{some}{most}")
        elif most == 1 and one is not None:
            yield one


def notes_of(task: TaskShown, span: Span, at: datetime) -> Iterator[tuple[str, str]]:
    """What went wrong, each with a mark: `!` what matters now, `·` what was."""
    told = list(_answers(task, span, at))
    present = _present(task)
    if told and present is not None and task.answers[-1].refused is None and task.answers[-1].error == present:
        told.pop()
    if (earlier := task.answered - len(task.answers)) > 0:
        yield "·", f"{earlier} earlier {'answer' if earlier == 1 else 'answers'}: --answers"
    for each in told:
        yield "·", each
    if present is not None:
        yield "!", clean(present)


def _present(task: TaskShown) -> str | None:
    if task.state is TaskState.BROKEN and task.broken is not None:
        return f"{task.broken.type}: {task.broken.message}" if task.broken.message else task.broken.type
    return task.error if task.state is TaskState.READY else None


def _answers(task: TaskShown, span: Span, at: datetime) -> Iterable[str]:
    for each in task.answers:
        by = f" by {clean(each.worker, 100)}" if each.worker else ""
        what = "a result" if each.error is None else clean(each.error)
        verb = "failed" if each.refused is None else f"refused, {clean(each.refused)}"
        yield f"{span(at - each.at)} ago{by}: {verb}: {what}"
