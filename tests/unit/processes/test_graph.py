"""What a decision does to the graph, in pictures; any decisions: tests/property/test_process_graph.py."""

from __future__ import annotations

import pytest

from app.errors import BadRequest
from processes.flow import Planned
from processes.graph import Arrow, Decided, Graph, Node, Step, Touched, apply, numbered, touched
from processes.states import TaskState

READY, PENDING, FOLLOWS, FINISHED = TaskState.READY, TaskState.PENDING, TaskState.FOLLOWS, TaskState.FINISHED


def begun() -> Graph:
    return Graph(1, 1, 0, {1: Node(READY)})


def call(*uses: int, after: tuple[int, ...] = ()) -> Planned:
    return Planned("a", "{}", uses, after)


def test_numbers_of_planned_calls_follow_those_there_are() -> None:
    assert [numbered(reference, 8) for reference in (5, 1, 0, -1, -2)] == [5, 1, 8, 9, 10]


def test_calls_become_tasks_that_wait_for_each_other() -> None:
    # P1
    of = begun()
    step = apply(of, 1, Decided([call(), call(0), call(0, -1, after=(0,)), call(1)]))
    assert step.created == [2, 3, 4, 5]
    assert step.arrows == [
        Arrow(2, 3, value=False),
        Arrow(2, 4, value=False),
        Arrow(3, 4, value=False),
        Arrow(1, 5, value=False),
    ]
    # 5 waits for the decider itself, which has finished now.
    assert step.ready == [2, 5]
    assert step.finished == [1]
    assert {number: (node.state, node.pending) for number, node in of.nodes.items()} == {
        1: (FINISHED, 0),
        2: (READY, 0),
        3: (PENDING, 1),
        4: (PENDING, 2),
        5: (READY, 0),
    }
    assert (of.tasks, of.unfinished, of.finished) == (5, 4, False)


def test_whoever_waits_for_a_decider_waits_for_the_task_whose_value_it_has() -> None:
    # P8
    of = begun()
    apply(of, 1, Decided([call(), call(0)]))
    assert apply(of, 2, Decided([call()], 0)) == Step(
        created=[4], arrows=[Arrow(4, 2, value=True)], ready=[4], changed={2}
    )
    assert of.nodes[2] == Node(FOLLOWS, 0, 4)
    assert apply(of, 4, Decided()) == Step(finished=[4, 2], ready=[3], changed={3})
    assert of.nodes[2] == Node(FINISHED, 0, 4)


def test_a_decider_that_has_the_value_of_one_that_has_it_from_another_names_the_last() -> None:
    # P8
    of = begun()
    apply(of, 1, Decided([call(), call(), call()]))
    apply(of, 2, Decided())
    apply(of, 3, Decided((), 2))
    assert apply(of, 4, Decided((), 3)) == Step(arrows=[Arrow(3, 4, value=True)], finished=[4])
    assert of.nodes[4] == Node(FINISHED, 0, 2)
    assert of.finished


@pytest.mark.parametrize(
    ("decided", "found"),
    [
        (Decided([call(1)]), Touched.FOLLOWERS),
        (Decided([call()], 0), Touched.NOTHING),
        (Decided([call(), call(0)], -1), Touched.NOTHING),
        (Decided([call(1)], 0), Touched.EVERYTHING),
        (Decided((), 3), Touched.EVERYTHING),
    ],
)
def test_what_is_read_for_a_decision_is_what_it_may_touch(decided: Decided, found: Touched) -> None:
    assert touched(decided) is found


def test_a_decision_that_cannot_be_changes_nothing() -> None:
    of = begun()
    with pytest.raises(BadRequest, match="task 1 cannot have the value of task 3, which waits for it"):
        apply(of, 1, Decided([call(1), call(0)], -1))
    assert of == begun()
