"""What is done again when a task is restarted, and what is not. Pure.

- What the task asked for, if it is a decider, is forgotten: it will ask anew.
- What waits for it, or for something that is forgotten, rests on what may come out otherwise: it is done again.
- What has its value *is* the value: its own decision stands, and it waits for the new one.
- What waits for something that is forgotten, and would not be: whoever asked for it is restarted as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from processes.graph import Arrow, Node
from processes.states import TaskState


@dataclass(frozen=True)
class Plan:
    """By number. `again`: are called again; `follows`: have decided, and wait for another value; `forgotten`: are not
    there any more."""

    again: frozenset[int]
    follows: frozenset[int]
    forgotten: frozenset[int]


def plan(creators: Mapping[int, int | None], arrows: Sequence[Arrow], numbers: Sequence[int]) -> Plan:
    """For the restart of these tasks. `creators`: who asked for each task."""
    out, children = defaultdict[int, list[Arrow]](list), defaultdict[int, list[int]](list)
    for arrow in arrows:
        out[arrow.source].append(arrow)
    for task, creator in creators.items():
        if creator is not None:
            children[creator].append(task)
    again, follows, forgotten = set[int](), set[int](), set[int]()
    left = [(number, again) for number in numbers]
    while left:
        number, group = left.pop()
        if number in group or number in forgotten or (group is follows and number in again):
            continue
        group.add(number)
        if group is not follows:
            left += [(child, forgotten) for child in children[number]]
        for arrow in out[number]:
            if group is forgotten:
                # It is forgotten as well, or whoever asked for it has to ask anew; what has the value decides anew.
                creator = arrow.target if arrow.value else creators[arrow.target]
                left.append((arrow.target if creator is None else creator, again))
            else:
                left.append((arrow.target, follows if arrow.value else again))
    again -= forgotten
    return Plan(frozenset(again), frozenset(follows - again - forgotten), frozenset(forgotten))


def for_a_copy(planned: Plan, nodes: Mapping[int, Node]) -> Plan:
    """What waits to be done, or is in work, is done by the copy as well: nobody answers to it but whom it calls."""
    open_ = {number for number, node in nodes.items() if node.state is TaskState.READY}
    return replace(planned, again=planned.again | (open_ - planned.forgotten))


def applied(nodes: Mapping[int, Node], arrows: Sequence[Arrow], planned: Plan) -> dict[int, Node]:
    """What remains, as it stands after the restart."""
    left = {number: node for number, node in nodes.items() if number not in planned.forgotten}
    kept = [arrow for arrow in arrows if arrow.source in left and arrow.target in left]
    undone = planned.again | planned.follows

    def finished(number: int) -> bool:
        return number not in undone and left[number].state is TaskState.FINISHED

    pending = dict.fromkeys(left, 0)
    source = {}
    for arrow in kept:
        if arrow.value:
            source[arrow.target] = arrow.source
        elif not finished(arrow.source):
            pending[arrow.target] += 1
    found = {}
    for number, node in left.items():
        if number in planned.follows:
            found[number] = Node(TaskState.FOLLOWS, 0, source[number])
        elif number in planned.again:
            found[number] = Node(TaskState.PENDING if pending[number] else TaskState.READY, pending[number])
        else:
            found[number] = Node(node.state, pending[number], node.value_of)
    return found


def kept_arrows(arrows: Sequence[Arrow], planned: Plan) -> list[Arrow]:
    """Without those of what is forgotten; one that decides anew follows nobody yet."""
    gone = planned.forgotten
    return [
        arrow
        for arrow in arrows
        if not (arrow.source in gone or arrow.target in gone or (arrow.value and arrow.target in planned.again))
    ]
