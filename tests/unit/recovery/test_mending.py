"""How tasks stand when each is what the others say."""

from __future__ import annotations

from processes.graph import Arrow, Node
from processes.states import TaskState
from recovery.mending import mended

FINISHED, READY, PENDING = TaskState.FINISHED, TaskState.READY, TaskState.PENDING
FOLLOWS, BROKEN = TaskState.FOLLOWS, TaskState.BROKEN


def test_what_has_decided_has_finished_and_all_that_follows_from_it() -> None:
    # R4 (4): 1 has the value of 2, which has that of 3; 4 waits for 1, 5 for 4.
    nodes = {1: Node(FOLLOWS, 0, 2), 2: Node(FOLLOWS, 0, 3), 3: Node(READY), 4: Node(PENDING, 1), 5: Node(PENDING, 1)}
    arrows = [Arrow(3, 2, value=True), Arrow(2, 1, value=True), Arrow(1, 4, value=False), Arrow(4, 5, value=False)]
    assert mended(nodes, arrows, [3]) == {
        1: Node(FINISHED, 0, 3),
        2: Node(FINISHED, 0, 3),
        3: Node(FINISHED),
        4: Node(READY),
        5: Node(PENDING, 1),
    }
    assert nodes[3] == Node(READY), "what was given stays"


def test_what_has_decided_whose_value_it_has_follows() -> None:
    nodes = {1: Node(READY, 0, 2), 2: Node(BROKEN)}
    assert mended(nodes, [Arrow(2, 1, value=True)], [1])[1] == Node(FOLLOWS, 0, 2)


def test_what_is_sound_stays() -> None:
    nodes = {1: Node(FINISHED), 2: Node(READY), 3: Node(PENDING, 1), 4: Node(BROKEN), 5: Node(FOLLOWS, 0, 3)}
    arrows = [Arrow(1, 2, value=False), Arrow(2, 3, value=False), Arrow(3, 5, value=True), Arrow(1, 3, value=False)]
    assert mended(nodes, arrows, ()) == nodes


def test_what_has_finished_keeps_the_value_that_it_says() -> None:
    nodes = {1: Node(FINISHED, 0, 2), 2: Node(FINISHED, 0, 3), 3: Node(FINISHED)}
    assert mended(nodes, [Arrow(3, 2, value=True), Arrow(2, 1, value=True)], ()) == nodes


def test_one_that_is_to_be_done_has_the_value_of_nobody() -> None:
    assert mended({1: Node(TaskState.ABORTED, 0, 7)}, [], ()) == {1: Node(READY)}


def test_a_source_that_is_gone_has_not_finished() -> None:
    # R3
    assert mended({1: Node(PENDING, 1)}, [Arrow(7, 1, value=False)], ()) == {1: Node(PENDING, 1)}


def test_what_nobody_knows_the_sources_of_stays_as_it_is() -> None:
    assert mended({1: Node(PENDING, 2)}, [], (), held={1}) == {1: Node(PENDING, 2)}
    assert mended({1: Node(PENDING, 2)}, [], ()) == {1: Node(READY)}


def test_one_that_was_ready_too_early_waits_again() -> None:
    nodes = {1: Node(READY), 2: Node(READY)}
    assert mended(nodes, [Arrow(1, 2, value=False)], ())[2] == Node(PENDING, 1)
