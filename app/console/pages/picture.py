"""The graph of a process as a picture: who waits for whom, from left to right. Pure.

- A task stands to the right of what it waits for, and of who asked for it.
- Tasks that look alike, and have nothing behind them, are one box.
- What would be too large to be looked at is no picture: None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from processes.shown import Shown, TaskShown
from processes.states import DecisionState, TaskState
from processes.wording import clean, cut

MOST = 120
FOLD_FROM = 4
WIDTH, HEIGHT, GAP_X, GAP_Y, EDGE = 168, 46, 56, 14, 8
LABEL = 21


@dataclass(frozen=True)
class Box:
    x: int
    y: int
    #: Of the first task in it.
    number: int
    count: int
    label: str
    state: str
    #: How long it took.
    took: timedelta | None
    #: What is read out.
    says: str


@dataclass(frozen=True)
class Line:
    path: str
    #: `waits`: the one waits for the other; `asks`: it was asked for; `value`: it has the value of the other.
    kind: str


@dataclass(frozen=True)
class Picture:
    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


@dataclass
class _Group:
    tasks: list[TaskShown]
    rank: int = 0
    place: float = 0.0


def picture(shown: Shown) -> Picture | None:
    groups = _folded(shown.tasks)
    if not len(shown.tasks) > 1 or len(groups) > MOST:
        return None
    of = {task.number: group for group in groups for task in group.tasks}
    arrows = _arrows(groups, of)
    _rank(groups, arrows)
    columns = _placed(groups, arrows)
    tallest = max(len(column) for column in columns)
    at = {
        id(group): (EDGE + group.rank * (WIDTH + GAP_X), EDGE + round(_top(column, i, tallest)))
        for column in columns
        for i, group in enumerate(column)
    }
    boxes = tuple(_box(group, *at[id(group)]) for group in groups)
    lines = tuple(_line(at[id(one)], at[id(other)], kind) for one, other, kind in arrows)
    width = 2 * EDGE + len(columns) * (WIDTH + GAP_X) - GAP_X
    return Picture(width, 2 * EDGE + tallest * (HEIGHT + GAP_Y) - GAP_Y, boxes, lines)


def state_of(task: TaskShown) -> str:
    return state_word(task.state, task.decision)


def state_word(state: TaskState, decision: DecisionState | None) -> str:
    """In work is more than ready."""
    return DecisionState.WORK.value if state is TaskState.READY and decision is DecisionState.WORK else state.value


def took(task: TaskShown) -> timedelta | None:
    """From the last hand-out to its answer."""
    end: datetime | None = task.decided_at or task.ended_at
    return None if task.claimed_at is None or end is None or end < task.claimed_at else end - task.claimed_at


def _folded(tasks: Sequence[TaskShown]) -> list[_Group]:
    behind = {source for task in tasks for source in task.sources}
    behind |= {task.created_by for task in tasks if task.created_by is not None}
    behind |= {task.value_of for task in tasks if task.value_of is not None}
    found: dict[object, _Group] = {}
    alike: dict[object, list[TaskShown]] = defaultdict(list)
    for task in tasks:
        alone = task.number in behind or task.value_of is not None
        key: object = task.number if alone else (task.actor, state_of(task), task.created_by, task.sources)
        alike[key].append(task)
    for key, each in alike.items():
        if len(each) >= FOLD_FROM:
            found[key] = _Group(each)
        else:
            found |= {("one", task.number): _Group([task]) for task in each}
    return sorted(found.values(), key=lambda group: group.tasks[0].number)


def _arrows(groups: Iterable[_Group], of: Mapping[int, _Group]) -> list[tuple[_Group, _Group, str]]:
    found = []
    for group in groups:
        task = group.tasks[0]
        waits = [number for number in task.sources if number in of]
        found += [(of[number], group, "waits") for number in waits]
        asker = of.get(task.created_by or 0)
        if asker is not None and task.created_by not in waits:
            found.append((asker, group, "asks"))
        if (source := of.get(task.value_of or 0)) is not None:
            found.append((source, group, "value"))
    return found


def _rank(groups: Sequence[_Group], arrows: Sequence[tuple[_Group, _Group, str]]) -> None:
    """A value comes from the right: it moves nobody. Bounded, should there be a circle after all."""
    forward = [(one, other) for one, other, kind in arrows if kind != "value" and one is not other]
    for _ in groups:
        moved = False
        for one, other in forward:
            if other.rank <= one.rank < len(groups):
                other.rank, moved = one.rank + 1, True
        if not moved:
            return


def _placed(groups: Sequence[_Group], arrows: Sequence[tuple[_Group, _Group, str]]) -> list[list[_Group]]:
    """Each beside the middle of what it comes from, so that few lines cross."""
    columns: dict[int, list[_Group]] = defaultdict(list)
    for group in groups:
        columns[group.rank].append(group)
    before: dict[int, list[_Group]] = defaultdict(list)
    for one, other, kind in arrows:
        if kind != "value":
            before[id(other)].append(one)
    ordered = []
    for rank in sorted(columns):
        column = columns[rank]
        for group in column:
            sources = before[id(group)]
            group.place = sum(each.place for each in sources) / len(sources) if sources else 0.0
        column.sort(key=lambda group: (group.place, group.tasks[0].number))
        for i, group in enumerate(column):
            group.place = (i + 0.5) / len(column)
        ordered.append(column)
    return ordered


def _top(column: Sequence[_Group], place: int, tallest: int) -> float:
    """In the middle of the height."""
    return (place + (tallest - len(column)) / 2) * (HEIGHT + GAP_Y)


def _box(group: _Group, x: int, y: int) -> Box:
    task, count = group.tasks[0], len(group.tasks)
    state = state_of(task)
    longest = max((span for each in group.tasks if (span := took(each)) is not None), default=None)
    name = clean(task.actor, 100)
    label = cut(f"×{count} {name}" if count > 1 else name, LABEL)
    says = (
        f"task {task.number}, {name}, {state}" if count == 1 else f"{count} tasks like {task.number}, {name}, {state}"
    )
    return Box(x, y, task.number, count, label, state, longest, says)


def _line(one: tuple[int, int], other: tuple[int, int], kind: str) -> Line:
    """Out of the right side, into the left one; a value goes back below."""
    (x1, y1), (x2, y2) = one, other
    if kind == "value":
        a, b = (x1 + WIDTH // 2, y1 + HEIGHT), (x2 + WIDTH // 2, y2 + HEIGHT)
        deep = max(a[1], b[1]) + GAP_Y
        return Line(f"M{a[0]} {a[1]}C{a[0]} {deep} {b[0]} {deep} {b[0]} {b[1]}", kind)
    a, b = (x1 + WIDTH, y1 + HEIGHT // 2), (x2, y2 + HEIGHT // 2)
    bend = max(GAP_X // 2, (b[0] - a[0]) // 2)
    return Line(f"M{a[0]} {a[1]}C{a[0] + bend} {a[1]} {b[0] - bend} {b[1]} {b[0]} {b[1]}", kind)
