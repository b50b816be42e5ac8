"""A data set: its parameters and how they moved, the tasks that need it, and those that produce it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.console.drawing import timeline
from app.console.pages import maps
from app.console.web.page import Page, Visit
from app.db import transaction
from app.errors import NotFound
from app.near import shown
from triggers import ctl
from triggers.looking import board, freshness, history
from triggers.looking.atlas import Node
from triggers.model import TASK, ReactiveLeaf

TASKS_SHOWN, CHANGES_SHOWN = 30, 30


def _read(visit: Visit) -> Mapping[str, Any]:
    entity, query = visit.query.needed("entity", 1000), visit.query
    length, before = query.choice("length", tuple(history.LENGTHS)), query.number("before")
    producers = maps.ATLAS.get().back.get(Node("data", entity), ())
    with transaction() as session:
        found = freshness.of(session, [entity]).get(entity, [])
        named = ctl.checked_name(entity, query.text("parameter") or (found[0].parameter if found else "value"))
        readers = _readers(session, entity, query.text("after", 1000))
        if not found and not producers and not readers and query.text("after") is None:
            raise NotFound(f"no data set {shown(entity)} has a value, and no task needs or produces it")
        now = session.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        names = [(each.entity, each.parameter) for each in found]
        drawn = history.of_parameters(session, names, now, length)
        changes = ctl.history(*named, limit=CHANGES_SHOWN + 1, before_id=before, session=session)
        return {
            "entity": entity,
            "fresh": found,
            "parameter": named[1],
            "picture": timeline.draw(entity, drawn) if found else None,
            "history": drawn,
            "lengths": tuple(history.LENGTHS),
            "changes": changes[:CHANGES_SHOWN],
            "older": changes[CHANGES_SHOWN - 1].id if len(changes) > CHANGES_SHOWN else None,
            "readers": board.of(session, readers[:TASKS_SHOWN]),
            "next": readers[TASKS_SHOWN - 1] if len(readers) > TASKS_SHOWN else None,
            "producers": board.of(session, [node.name for node in producers[:TASKS_SHOWN]]),
            "more_producers": max(0, len(producers) - TASKS_SHOWN),
        }


def _readers(session: Session, entity: str, after: str | None) -> list[str]:
    """By name, one more than are shown."""
    leaf = ReactiveLeaf
    own = sa.select(leaf.task_id).where(leaf.entity == entity)
    reference = sa.select(leaf.task_id).where(leaf.ref_entity == entity)
    query = sa.select(TASK.c.name).where(TASK.c.id.in_(sa.union(own, reference)), TASK.c.removed_at.is_(None))
    if after is not None:
        query = query.where(TASK.c.name > after)
    return list(session.execute(query.order_by(TASK.c.name).limit(TASKS_SHOWN + 1)).scalars())


PAGES = (Page("dataset", "/dataset", "dataset.html", _read),)
