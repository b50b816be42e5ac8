"""The picture of a process's graph."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from app.console.pages.picture import HEIGHT, MOST, WIDTH, Box, picture, took
from processes.shown import Shown, TaskShown
from processes.states import DecisionState, ProcessState, TaskState

AT = datetime(2026, 7, 1, 12, tzinfo=UTC)


def task(number: int, actor: str = "a", state: TaskState = TaskState.FINISHED, **more: Any) -> TaskShown:
    return TaskShown(number, actor, state, '{"args": [], "kwargs": {}}', AT, **more)


def shown(*tasks: TaskShown) -> Shown:
    state = ProcessState.ACTIVE
    return Shown(1, "p", state, None, 0, None, None, {}, "{}", None, AT, AT, None, None, AT, tasks=tasks)


def boxes(*tasks: TaskShown) -> dict[int, Box]:
    found = picture(shown(*tasks))
    assert found is not None
    return {box.number: box for box in found.boxes}


def test_what_waits_stands_to_the_right_of_what_it_waits_for() -> None:
    found = boxes(
        task(1),
        task(2, created_by=1),
        task(3, created_by=1),
        task(4, created_by=1, sources=(2, 3)),
        task(5, sources=(4,)),
    )
    columns = [found[number].x for number in (1, 2, 3, 4, 5)]
    assert columns[0] < columns[1] == columns[2] < columns[3] < columns[4]


def test_no_two_boxes_lie_on_each_other() -> None:
    tasks = [task(1), *(task(i, f"a{i}", created_by=1) for i in range(2, 20)), task(20, sources=tuple(range(2, 20)))]
    found = list(boxes(*tasks).values())
    for one in found:
        for other in found:
            if one is not other:
                assert abs(one.x - other.x) >= WIDTH or abs(one.y - other.y) >= HEIGHT


def test_tasks_that_look_alike_are_one_box() -> None:
    many = [task(number, "ship", created_by=1) for number in range(2, 1002)]
    found = boxes(task(1), *many)
    assert len(found) == 2
    assert (found[2].count, found[2].label) == (1000, "×1000 ship")
    mixed = boxes(task(1), *many[:10], task(50, "ship", TaskState.BROKEN, created_by=1))
    counts = sorted((box.state, box.count) for box in mixed.values())
    assert counts == [("BROKEN", 1), ("FINISHED", 1), ("FINISHED", 10)]


def test_what_is_too_large_or_nothing_is_no_picture() -> None:
    assert picture(shown()) is None
    assert picture(shown(task(1))) is None
    assert picture(shown(task(1), *(task(i, f"a{i}", created_by=1) for i in range(2, MOST + 2)))) is None


def test_a_circle_is_drawn_all_the_same() -> None:
    assert len(boxes(task(1, sources=(2,)), task(2, sources=(1,)))) == 2


def test_a_value_goes_back_and_moves_nobody() -> None:
    first = task(1, state=TaskState.FOLLOWS, value_of=2)
    found = picture(shown(first, task(2, created_by=1)))
    assert found is not None
    assert [line.kind for line in found.lines] == ["value", "asks"]
    assert found.boxes[0].x < found.boxes[1].x


def test_in_work_is_more_than_ready_and_times_are_of_the_last_hand_out() -> None:
    working = task(2, state=TaskState.READY, decision=DecisionState.WORK)
    assert boxes(task(1), working)[2].state == "WORK"
    assert took(working) is None
    done = task(3, claimed_at=AT, decided_at=AT + timedelta(seconds=2), ended_at=AT + timedelta(hours=1))
    assert took(done) == timedelta(seconds=2)


def test_names_are_cut_and_read_out_in_full() -> None:
    name = "<b>" + "a" * 90
    box = boxes(task(1), task(2, name))[2]
    assert len(box.label) < 25
    assert name in box.says
