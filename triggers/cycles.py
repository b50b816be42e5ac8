"""Cycles in a graph of names.

What it promises:

- For every name on a cycle, a shortest cycle through it is found; each cycle is given once, from its first name.
- The cost is bounded: one search for each name that is left when those on no cycle have been peeled off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

Graph = Mapping[str, Collection[str]]


def cycles(graph: Graph) -> list[tuple[str, ...]]:
    """`graph[a]` holds the names that `a` leads to."""
    core = _peeled(graph)
    found: dict[tuple[str, ...], None] = {}
    for name in sorted(core):
        if cycle := _shortest(core, name):
            first = cycle.index(min(cycle))
            found[cycle[first:] + cycle[:first]] = None
    return list(found)


def _peeled(graph: Graph) -> dict[str, list[str]]:
    """Without what leads nowhere, and without what nothing leads to, again and again."""
    forth = {name: set(after) & graph.keys() for name, after in graph.items()}
    back: dict[str, set[str]] = {name: set() for name in graph}
    for name, after in forth.items():
        for each in after:
            back[each].add(name)
    ends = [name for name in forth if not forth[name] or not back[name]]
    while ends:
        name = ends.pop()
        if name not in forth:
            continue
        for each in forth.pop(name):
            back[each].discard(name)
            if not back[each]:
                ends.append(each)
        for each in back.pop(name):
            forth[each].discard(name)
            if not forth[each]:
                ends.append(each)
    return {name: sorted(after) for name, after in forth.items()}


def _shortest(graph: Graph, start: str) -> tuple[str, ...]:
    came_from: dict[str, str] = {}
    waiting = deque([start])
    while waiting:
        name = waiting.popleft()
        for after in graph[name]:
            if after == start:
                path = [name]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return tuple(reversed(path))
            if after not in came_from:
                came_from[after] = name
                waiting.append(after)
    return ()
