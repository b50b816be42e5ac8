"""The graph of a process as lines of text. Pure.

- A task stands below the decider that asked for it, in the order of their numbers.
- Tasks that look alike, with all that is below them, are folded into one line: `×998 ship FINISHED`.
- No line is wider than asked for: what does not fit goes on below, and what never fits is cut.
- Whatever texts hold, they stay on their line, and write nothing but themselves.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from processes.fingerprint import kind_of
from processes.shown import Shown, TaskShown
from processes.states import DecisionState, TaskState
from processes.wording import clean, cut, listed, notes_of, parts_of, wide

#: So many that look alike are folded.
FOLD_FROM = 5
#: Without `unfold`, no more lines than this, and what else there is to look at.
LINES_MOST, MORE_MOST = 400, 20
#: Deeper ones are not indented any more, but say whose they are.
DEEPEST, DEEPEST_SHARE = 12, 6
NARROWEST = 20


class Level(enum.StrEnum):
    PLAIN = "plain"
    #: Somebody works on it.
    BUSY = "busy"
    BAD = "bad"


@dataclass(frozen=True)
class Line:
    text: str
    level: Level = Level.PLAIN


@dataclass
class Branch:
    """Tasks that look alike, and what is below the first of them."""

    shape: int
    members: list[TaskShown]
    children: list[Branch] = field(default_factory=list)
    #: Those of the others.
    others: list[Branch] = field(default_factory=list)

    @property
    def first(self) -> TaskShown:
        return self.members[0]


@dataclass(frozen=True)
class Pen:
    """How it is to be drawn. `span`: how a span is written."""

    at: datetime
    states: dict[int, TaskState]
    #: How many tasks wait for each.
    waiting: dict[int, int]
    span: Callable[[timedelta], str]
    width: int | None = None

    @property
    def deepest(self) -> int:
        return DEEPEST if self.width is None else max(1, min(DEEPEST, self.width // DEEPEST_SHARE // 2))


def draw(
    shown: Shown, span: Callable[[timedelta], str], *, width: int | None = None, unfold: bool = False
) -> list[Line]:
    """`width`: of the terminal in columns; None: as wide as need be."""
    pen = Pen(
        shown.at,
        {task.number: task.state for task in shown.tasks},
        _waiting(shown.tasks),
        span,
        None if width is None else max(width, NARROWEST),
    )
    found, drawn = list[Line](), set[int]()
    left = [(branch, "", "", 0) for branch in reversed(branches(shown, unfold=unfold))]
    while left:
        if len(found) >= LINES_MOST and not unfold:
            return found + list(_rest(shown, pen, drawn))
        branch, first, rest, depth = left.pop()
        below = rest + ("│  " if branch.children else "   ")
        found += _of(branch, first, below, depth, pen)
        drawn.update(_told_with(branch))
        deeper = depth + 1 <= pen.deepest
        for i, child in reversed(list(enumerate(branch.children))):
            last = i == len(branch.children) - 1
            if deeper:
                left.append((child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "), depth + 1))
            else:
                left.append((child, first, rest, depth + 1))
    return found


def branches(shown: Shown, *, unfold: bool = False) -> list[Branch]:
    """The tasks that nobody asked for, with all that is below them, folded."""
    known = {task.number for task in shown.tasks}
    below: dict[int | None, list[Branch]] = {}
    shapes: dict[object, int] = {}
    # Whoever asked for a task has a smaller number: what is below a task is known when its turn comes.
    for task in sorted(shown.tasks, key=lambda each: each.number, reverse=True):
        children = _folded(below.pop(task.number, [])[::-1], unfold=unfold)
        shape = (_look(task, shown.at), tuple((each.shape, len(each.members)) for each in children))
        branch = Branch(shapes.setdefault(shape, len(shapes)), [task], children)
        by = task.created_by
        below.setdefault(by if by is not None and by in known and by < task.number else None, []).append(branch)
    return _folded(below.get(None, [])[::-1], unfold=unfold)


def _folded(found: list[Branch], *, unfold: bool) -> list[Branch]:
    if unfold or len(found) < FOLD_FROM:
        return found
    alike: dict[int, list[Branch]] = {}
    for branch in found:
        alike.setdefault(branch.shape, []).append(branch)
    told = []
    for branch in found:
        same = alike[branch.shape]
        if len(same) < FOLD_FROM:
            told.append(branch)
        elif branch is same[0]:
            members = [each.first for each in same]
            told.append(Branch(branch.shape, members, branch.children, same[1:]))
    return told


def _look(task: TaskShown, at: datetime) -> tuple[object, ...]:
    """Tasks of which this is the same are told in one line."""
    ahead = task.due_at is not None and task.due_at > at
    error = task.broken and f"{task.broken.type}: {task.broken.message}"
    if error is None and task.state is TaskState.READY:
        error = task.error
    in_turn = (task.state, task.decision if task.state is TaskState.READY else None, ahead)
    return task.actor, *in_turn, task.failed, task.value_of is None, task.answered > 0, error and kind_of(error)


def _waiting(tasks: Iterable[TaskShown]) -> dict[int, int]:
    found: dict[int, int] = {}
    for task in tasks:
        for source in task.sources:
            found[source] = found.get(source, 0) + 1
    return found


def _told_with(branch: Branch) -> Iterator[int]:
    """The tasks that a line speaks for: of a fold, also what is below the others."""
    yield from (task.number for task in branch.members)
    left = [child for each in branch.others for child in each.children]
    while left:
        each = left.pop()
        yield from (task.number for task in each.members)
        left += [*each.children, *(child for other in each.others for child in other.children)]


def _of(branch: Branch, first: str, rest: str, depth: int, pen: Pen) -> list[Line]:
    task, count = branch.first, len(branch.members)
    numbers = str(task.number) if count == 1 else f"×{count}"
    head = f"{numbers} {clean(task.actor, 100)} {task.state}"
    parts = parts_of(branch.members, pen.at, pen.states, pen.waiting, pen.span)
    if count > 1:
        parts.insert(0, f"tasks {listed([each.number for each in branch.members])}")
        if branch.children:
            parts.append(f"below: what task {task.number} asked for")
    if depth > pen.deepest:
        parts.insert(0, f"asked for by {task.created_by}")
    level = _level(task)
    lines = [Line(text, level) for text in flowing(first, rest, head, parts, pen.width)]
    example = f"for example task {task.number}: " if count > 1 else ""
    for mark, text in notes_of(task, pen.span, pen.at):
        note = cut(f"{rest} {mark} {example}{text}", pen.width)
        lines.append(Line(note, Level.BAD if mark == "!" else Level.PLAIN))
    return lines


def _level(task: TaskShown) -> Level:
    if task.state is TaskState.BROKEN:
        return Level.BAD
    return Level.BUSY if task.state is TaskState.READY and task.decision is DecisionState.WORK else Level.PLAIN


def flowing(first: str, rest: str, head: str, parts: Sequence[str], width: int | None) -> list[str]:
    """The head and its parts, on as many lines as they take."""
    lines, line, joint = list[str](), first + head, "  "
    for part in parts:
        # One column is for the comma.
        if width is not None and wide(line + joint + part) >= width:
            lines.append(line + joint.rstrip())
            line = f"{rest}   {part}"
        else:
            line += joint + part
        joint = ", "
    lines.append(line)
    return [cut(each, width) for each in lines]


def _rest(shown: Shown, pen: Pen, drawn: set[int]) -> Iterator[Line]:
    """What was left out; one by one, what somebody may want to look at."""
    left = [task for task in shown.tasks if task.number not in drawn]
    yield Line(cut(f"… and {len(left)} more tasks: --all shows them", pen.width))
    order = {TaskState.BROKEN: 0, TaskState.READY: 1}
    told = sorted((task for task in left if task.state in order), key=lambda each: (order[each.state], each.number))
    for task in told[:MORE_MOST]:
        yield from _of(Branch(0, [task]), "", "   ", 0, pen)
    if len(told) > MORE_MOST:
        yield Line(cut(f"… {len(told) - MORE_MOST} more of these are broken or ready", pen.width))
