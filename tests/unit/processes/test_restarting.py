"""What a restart does again, in pictures."""

from __future__ import annotations

from processes.graph import Arrow, Node
from processes.restarting import Plan, applied, kept_arrows, plan
from processes.states import TaskState

READY, PENDING, FOLLOWS, FINISHED = TaskState.READY, TaskState.PENDING, TaskState.FOLLOWS, TaskState.FINISHED


def planned(again: set[int], follows: set[int], forgotten: set[int]) -> Plan:
    return Plan(frozenset(again), frozenset(follows), frozenset(forgotten))


#: 1 asked for 2, 3 and 4; 3 waited for 2; 1 has the value of 3; 4 is on its own.
CREATORS = {1: None, 2: 1, 3: 1, 4: 1}
ARROWS = [Arrow(2, 3, value=False), Arrow(3, 1, value=True)]
DONE = {1: Node(FINISHED, 0, 3), 2: Node(FINISHED), 3: Node(FINISHED), 4: Node(FINISHED)}


def test_what_waits_is_done_again_what_has_its_value_waits_and_the_rest_stays() -> None:
    # R10
    found = plan(CREATORS, ARROWS, [2])
    assert found == planned({2, 3}, {1}, set())
    assert applied(DONE, ARROWS, found) == {
        1: Node(FOLLOWS, 0, 3),
        2: Node(READY),
        3: Node(PENDING, 1),
        4: Node(FINISHED),
    }
    assert kept_arrows(ARROWS, found) == ARROWS


def test_from_its_start_a_process_forgets_everything_else() -> None:
    found = plan(CREATORS, ARROWS, [1])
    assert found == planned({1}, set(), {2, 3, 4})
    assert applied(DONE, ARROWS, found) == {1: Node(READY)}
    assert kept_arrows(ARROWS, found) == []


def test_a_decider_that_looked_at_a_value_before_it_was_its_own_decides_anew() -> None:
    # P8: 3 waited for 2, and has its value.
    arrows = [Arrow(2, 3, value=False), Arrow(2, 3, value=True), Arrow(3, 1, value=True)]
    nodes = {1: Node(FINISHED, 0, 2), 2: Node(FINISHED), 3: Node(FINISHED, 0, 2)}
    found = plan({1: None, 2: 1, 3: 1}, arrows, [2])
    assert found == planned({2, 3}, {1}, set())
    assert applied(nodes, arrows, found) == {1: Node(FOLLOWS, 0, 3), 2: Node(READY), 3: Node(PENDING, 1)}
    assert kept_arrows(arrows, found) == [arrows[0], arrows[2]]


def test_a_decider_in_the_middle_forgets_what_it_asked_for_and_what_rests_on_that() -> None:
    # 2 asked for 5, of which it has the value; 3 waits for 2.
    creators = CREATORS | {5: 2}
    arrows = [*ARROWS, Arrow(5, 2, value=True)]
    nodes = DONE | {2: Node(FINISHED, 0, 5), 5: Node(FINISHED)}
    found = plan(creators, arrows, [2])
    assert found == planned({2, 3}, {1}, {5})
    assert applied(nodes, arrows, found)[2] == Node(READY)
    assert kept_arrows(arrows, found) == ARROWS


def test_who_asked_for_something_that_waits_for_what_is_forgotten_asks_anew() -> None:
    # 4 was told the number of 5, which 2 had asked for, and asked for 6 to wait for it.
    creators = CREATORS | {5: 2, 6: 4}
    arrows = [*ARROWS, Arrow(5, 6, value=False)]
    assert plan(creators, arrows, [2]) == planned({2, 3, 4}, {1}, {5, 6})


def test_what_waits_for_one_that_has_the_value_waits_again() -> None:
    # P8: 5 waited for 1, which has the value of 3.
    arrows = [*ARROWS, Arrow(1, 5, value=False)]
    nodes = DONE | {5: Node(FINISHED)}
    found = plan(CREATORS | {5: 1}, arrows, [3])
    assert found == planned({3, 5}, {1}, set())
    after = applied(nodes, arrows, found)
    assert (after[1], after[5]) == (Node(FOLLOWS, 0, 3), Node(PENDING, 1))


def test_several_at_once() -> None:
    assert plan(CREATORS, ARROWS, [4, 2]) == planned({2, 3, 4}, {1}, set())
    assert plan(CREATORS, ARROWS, [4, 1]) == planned({1}, set(), {2, 3, 4})
    assert plan(CREATORS, ARROWS, [3, 1, 3]) == plan(CREATORS, ARROWS, [1])
