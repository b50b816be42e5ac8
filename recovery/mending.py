"""How the tasks of a process stand when each is what the others say. Pure.

What has been decided is taken for granted; everything else follows from it: who has finished, who waits for how many,
who is ready.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from processes.graph import Arrow, Node
from processes.states import TaskState


def mended(
    nodes: Mapping[int, Node], arrows: Sequence[Arrow], decided: Collection[int], held: Collection[int] = ()
) -> dict[int, Node]:
    """`decided`: tasks that hold a value, or say whose they have, and stand as if they did not. `held`: nobody knows
    what these wait for; they stay as they are. A source that is not there has not finished."""
    found = {number: Node(node.state, node.pending, node.value_of) for number, node in nodes.items()}
    for number in decided:
        node = found[number]
        node.state, node.pending = (TaskState.FINISHED if node.value_of is None else TaskState.FOLLOWS), 0
    _finish_followers(found)
    waits: dict[int, int] = defaultdict(int)
    for arrow in arrows:
        source = found.get(arrow.source)
        if not arrow.value and (source is None or source.state is not TaskState.FINISHED):
            waits[arrow.target] += 1
    for number, node in found.items():
        if node.state in _WAITING and number not in held:
            node.pending = waits[number]
            node.state = TaskState.PENDING if node.pending else TaskState.READY
            node.value_of = None
    return found


#: Of a process that goes on; one that is aborted there was aborted by mistake.
_WAITING = (TaskState.PENDING, TaskState.READY, TaskState.ABORTED)


def _finish_followers(found: dict[int, Node]) -> None:
    """What follows a task that has finished, has; and so on."""
    followers = defaultdict[int, list[int]](list)
    for number, node in found.items():
        if node.state is TaskState.FOLLOWS and node.value_of is not None:
            followers[node.value_of].append(number)
    left = [number for number in followers if number in found and found[number].state is TaskState.FINISHED]
    while left:
        source = left.pop()
        for number in followers.pop(source, ()):
            node = found[number]
            node.state, node.value_of = TaskState.FINISHED, found[source].value_of or source
            left.append(number)
