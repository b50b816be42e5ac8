"""The map of data sets and tasks as a picture: boxes in columns, arrows between them that cross as little as may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from triggers.looking.atlas import Arrow, Node, columns

WIDTH, HEIGHT = 208.0, 58.0
ACROSS, DOWN, MARGIN = 60.0, 18.0, 12.0
SWEEPS = 6
#: A bend of an arrow that goes over several columns: it has its place there as a node has.
Bend: TypeAlias = tuple[Arrow, int]
Item: TypeAlias = Node | Bend


@dataclass(frozen=True)
class Box:
    node: Node
    x: float
    y: float


@dataclass(frozen=True)
class Line:
    path: str
    #: Against the direction: it closes a circle.
    back: bool
    says: str


@dataclass(frozen=True)
class Chart:
    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    box_width: float = WIDTH
    box_height: float = HEIGHT


def draw(nodes: Sequence[Node], arrows: Sequence[Arrow]) -> Chart:
    column = columns(nodes, arrows)
    first = min(column.values(), default=0)
    column = {node: number - first for node, number in column.items()}
    levels, chains = _levels(column, arrows)
    _untangle(levels, chains)
    places = _places(levels)
    boxes = [Box(node, *places[node]) for node in nodes]
    lines = [_line(arrow, chain, places, column) for arrow, chain in chains.items()]
    width = MARGIN * 2 + len(levels) * (WIDTH + ACROSS) - ACROSS
    height = MARGIN * 2 + max((y + HEIGHT for _, y in places.values()), default=HEIGHT) - MARGIN
    return Chart(width, height, tuple(boxes), tuple(lines))


def _levels(
    column: Mapping[Node, int], arrows: Iterable[Arrow]
) -> tuple[list[list[Item]], dict[Arrow, tuple[Item, ...]]]:
    levels: list[list[Item]] = [[] for _ in range(max(column.values(), default=0) + 1)]
    for node, number in column.items():
        levels[number].append(node)
    chains: dict[Arrow, tuple[Item, ...]] = {}
    for arrow in arrows:
        start, end = arrow
        bends: list[Item] = [(arrow, number) for number in range(column[start] + 1, column[end])]
        for bend, number in zip(bends, range(column[start] + 1, column[end]), strict=True):
            levels[number].append(bend)
        chains[arrow] = (start, *bends, end)
    return levels, chains


def _untangle(levels: list[list[Item]], chains: Mapping[Arrow, Sequence[Item]]) -> None:
    """Each item to the middle of its neighbours in the column before, then in the column after, a few times."""
    before: dict[Item, list[Item]] = {}
    after: dict[Item, list[Item]] = {}
    for chain in chains.values():
        for one, next_one in pairwise(chain):
            before.setdefault(next_one, []).append(one)
            after.setdefault(one, []).append(next_one)
    for sweep in range(SWEEPS):
        forth = sweep % 2 == 0
        near = before if forth else after
        numbers = range(1, len(levels)) if forth else range(len(levels) - 2, -1, -1)
        for number in numbers:
            beside = {item: place for place, item in enumerate(levels[number - 1 if forth else number + 1])}
            _sort(levels[number], near, beside)


def _sort(level: list[Item], near: Mapping[Item, Sequence[Item]], beside: Mapping[Item, int]) -> None:
    def middle(entry: tuple[int, Item]) -> float:
        places = [beside[each] for each in near.get(entry[1], ()) if each in beside]
        return sum(places) / len(places) if places else float(entry[0])

    level[:] = [item for _, item in sorted(enumerate(level), key=middle)]


def _places(levels: Sequence[Sequence[Item]]) -> dict[Item, tuple[float, float]]:
    """Columns stand beside each other by their middles."""
    heights = [sum(_height(item) for item in level) + DOWN * (len(level) - 1) for level in levels]
    tallest = max(heights, default=HEIGHT)
    found: dict[Item, tuple[float, float]] = {}
    for number, (level, height) in enumerate(zip(levels, heights, strict=True)):
        y = MARGIN + (tallest - height) / 2
        for item in level:
            found[item] = (MARGIN + number * (WIDTH + ACROSS), round(y, 1))
            y += _height(item) + DOWN
    return found


def _height(item: Item) -> float:
    return HEIGHT if isinstance(item, Node) else 4.0


def _line(
    arrow: Arrow, chain: Sequence[Item], places: Mapping[Item, tuple[float, float]], column: Mapping[Node, int]
) -> Line:
    start, end = arrow
    says = f"{start.name} to {end.name}"
    (x, y), (to_x, to_y) = places[start], places[end]
    x, y, to_y = x + WIDTH, y + HEIGHT / 2, to_y + HEIGHT / 2
    if column[end] <= column[start]:
        reach = ACROSS * 0.9
        return Line(
            f"M{x:g} {y:g}C{x + reach:g} {y - HEIGHT:g} {to_x - reach:g} {to_y - HEIGHT:g} {to_x:g} {to_y:g}",
            True,
            says,
        )
    words = [f"M{x:g} {y:g}"]
    for bend in chain[1:-1]:
        left, middle = places[bend]
        words += [_curve(x, y, left, middle), f"L{left + WIDTH:g} {middle:g}"]
        x, y = left + WIDTH, middle
    return Line("".join([*words, _curve(x, y, to_x, to_y)]), False, says)


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    half = (to_x - x) / 2
    return f"C{x + half:g} {y:g} {to_x - half:g} {to_y:g} {to_x:g} {to_y:g}"
