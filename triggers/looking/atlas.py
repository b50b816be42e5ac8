"""The atlas: which tasks need which data sets, and which they produce. Pure, but for `read`.

What it promises:

- `around` is the neighbourhood of one node, by steps along the arrows, the nearest first, and at most so many nodes.
- `columns` gives every node a column, such that arrows lead to the right; those that close a circle lead back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from triggers.model import TASK, ReactiveLeaf


class Node(NamedTuple):
    #: `task` or `data`.
    kind: str
    name: str


Arrow = tuple[Node, Node]


@dataclass(frozen=True)
class Atlas:
    forth: Mapping[Node, Sequence[Node]] = field(default_factory=dict)
    back: Mapping[Node, Sequence[Node]] = field(default_factory=dict)

    @property
    def nodes(self) -> Iterable[Node]:
        return self.forth.keys()

    def around(self, middle: Node, depth: int, most: int) -> list[Node]:
        """The middle first."""
        near = {middle: 0}
        for next_of in (self.back, self.forth):
            rest, seen = deque([(middle, 0)]), {middle}
            while rest:
                node, steps = rest.popleft()
                if steps == depth:
                    continue
                for each in next_of.get(node, ()):
                    if each not in seen:
                        seen.add(each)
                        near.setdefault(each, steps + 1)
                        rest.append((each, steps + 1))
        return sorted(near, key=lambda node: (near[node], node))[:most]

    def between(self, nodes: Iterable[Node]) -> list[Arrow]:
        """The arrows between these."""
        some = list(nodes)
        kept = set(some)
        return [(node, after) for node in some for after in self.forth.get(node, ()) if after in kept]

    def find(self, text: str, most: int) -> list[Node]:
        """Names that have the text in them."""
        wanted = text.casefold()
        found = [node for node in self.nodes if wanted in node.name.casefold()]
        return sorted(found, key=lambda node: (node.name.casefold() != wanted, node))[:most]


def drawn(arrows: Iterable[Arrow], alone: Iterable[Node] = ()) -> Atlas:
    forth: dict[Node, dict[Node, None]] = {node: {} for node in alone}
    back: dict[Node, dict[Node, None]] = {}
    for before, after in arrows:
        forth.setdefault(before, {})[after] = None
        forth.setdefault(after, {})
        back.setdefault(after, {})[before] = None
    return Atlas({node: tuple(found) for node, found in forth.items()}, {n: tuple(f) for n, f in back.items()})


def read(session: Session) -> Atlas:
    """Of all declared tasks: worth remembering for a while."""
    declared = TASK.c.removed_at.is_(None)
    leaf = ReactiveLeaf
    needs = sa.select(TASK.c.name, leaf.entity, leaf.ref_entity).join(leaf, leaf.task_id == TASK.c.id).where(declared)
    arrows: dict[Arrow, None] = {}
    for name, entity, reference in session.execute(needs.order_by(TASK.c.name, leaf.position)):
        arrows[(Node("data", entity), Node("task", name))] = None
        if reference is not None:
            arrows[(Node("data", reference), Node("task", name))] = None
    produces = sa.select(TASK.c.name, TASK.c.produces).where(declared).order_by(TASK.c.name)
    for name, pairs in session.execute(produces):
        for entity, _ in pairs or ():
            arrows[(Node("task", name), Node("data", entity))] = None
    return drawn(arrows)


def columns(nodes: Sequence[Node], arrows: Iterable[Arrow]) -> dict[Node, int]:
    """By the longest way to each, leaving out arrows that close a circle."""
    after: dict[Node, list[Node]] = {node: [] for node in nodes}
    for start, end in arrows:
        if start != end:
            after[start].append(end)
    order = _order(nodes, after)
    place = {node: number for number, node in enumerate(order)}
    found = dict.fromkeys(nodes, 0)
    for node in order:
        for each in after[node]:
            if place[each] > place[node]:
                found[each] = max(found[each], found[node] + 1)
    _pull(order, after, place, found)
    return found


def _pull(
    order: Sequence[Node], after: Mapping[Node, Sequence[Node]], place: Mapping[Node, int], found: dict[Node, int]
) -> None:
    """What nothing leads to stands right before what it leads to."""
    entered = {each for node in order for each in after[node] if place[each] > place[node]}
    for node in order:
        ahead = [found[each] for each in after[node] if place[each] > place[node]]
        if node not in entered and ahead:
            found[node] = min(ahead) - 1


def _order(nodes: Sequence[Node], after: Mapping[Node, Sequence[Node]]) -> list[Node]:
    """Before what it leads to, where there is no circle. Without recursion: a chain may be long."""
    entered = {each for node in nodes for each in after[node]}
    begins = [node for node in nodes if node not in entered] + [node for node in nodes if node in entered]
    done: list[Node] = []
    seen: set[Node] = set()
    for begin in begins:
        rest: list[tuple[Node, bool]] = [(begin, False)]
        while rest:
            node, left = rest.pop()
            if left:
                done.append(node)
            elif node not in seen:
                seen.add(node)
                rest.append((node, True))
                rest += [(each, False) for each in reversed(after[node]) if each not in seen]
    return done[::-1]
