"""The map: which tasks need which data sets and produce which, with how fresh each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from app.console.drawing import chart
from app.console.web.memory import Remembered
from app.console.web.page import Page, Visit
from app.db import transaction
from app.errors import NotFound
from app.near import shown
from triggers.looking import atlas, board, freshness
from triggers.looking.atlas import Atlas, Node

#: A map with more boxes says nothing: then a neighbourhood is shown.
WHOLE_MOST, BOXES_MOST = 60, 80
DEPTHS = (1, 2, 3)
FOUND_MOST = 40
ATLAS_SECONDS = 5.0


def _atlas() -> Atlas:
    with transaction() as session:
        return atlas.read(session)


ATLAS = Remembered(_atlas, ATLAS_SECONDS).kept()


def _read(visit: Visit) -> Mapping[str, Any]:
    known = ATLAS.get()
    depth = visit.query.number("depth", 1, DEPTHS[-1]) or 2
    middle, text = _middle(visit), visit.query.text("text", 200)
    if middle is not None and middle not in known.forth:
        raise NotFound(f"the map has no {'task' if middle.kind == 'task' else 'data set'} {shown(middle.name)}")
    count = len(known.forth)
    near = known.around(middle, depth, BOXES_MOST + 1) if middle is not None else []
    if middle is None and count <= WHOLE_MOST:
        near = sorted(known.nodes)
    nodes = sorted(near[:BOXES_MOST])
    with transaction() as session:
        told = _told(session, nodes)
    return {
        "middle": middle,
        "depth": depth,
        "depths": DEPTHS,
        "count": count,
        "more": len(near) > BOXES_MOST,
        "boxes_most": BOXES_MOST,
        "chart": chart.draw(nodes, known.between(nodes)) if nodes else None,
        "known": told,
        "found": known.find(text, FOUND_MOST + 1) if text else [],
        "found_most": FOUND_MOST,
        "some": sorted(known.nodes)[:FOUND_MOST] if not nodes and not text else [],
        "forth": known.forth,
        "back": known.back,
        "text": text,
    }


def _middle(visit: Visit) -> Node | None:
    if (entity := visit.query.text("entity", 1000)) is not None:
        return Node("data", entity)
    task = visit.query.text("task", 1000)
    return None if task is None else Node("task", task)


def _told(session: Session, nodes: Sequence[Node]) -> dict[Node, Any]:
    """Of a task its line of the board, of a data set its parameters."""
    lines = board.of(session, [node.name for node in nodes if node.kind == "task"])
    fresh = freshness.of(session, [node.name for node in nodes if node.kind == "data"])
    told: dict[Node, Any] = {Node("task", line.name): line for line in lines}
    return told | {Node("data", entity): found for entity, found in fresh.items()}


PAGES = (Page("map", "/map", "map.html", _read),)
