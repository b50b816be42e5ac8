"""The board of reactive tasks, and their pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from app.console.web.page import Page, Visit
from app.db import transaction
from triggers.looking import board
from triggers.looking.rooms import counts, rooms
from triggers.model import ReactivePool

SHOWN = 50


def _read(visit: Visit) -> Mapping[str, Any]:
    query = visit.query
    wanted = board.Wanted(
        query.choice("state", board.STATES), query.text("pool"), query.text("text", 200), query.text("after", 1000)
    )
    with transaction() as session:
        lines = board.page(session, wanted, SHOWN + 1)
        pools = list(session.scalars(sa.select(ReactivePool.name).order_by(ReactivePool.name)))
    return {
        "lines": lines[:SHOWN],
        "next": lines[SHOWN - 1].name if len(lines) > SHOWN else None,
        "pools": pools,
        "states": board.STATES,
        "wanted": wanted,
        "filtered": any((wanted.state, wanted.pool, wanted.text)),
    }


def _read_pools(_: Visit) -> Mapping[str, Any]:
    with transaction() as session:
        found = rooms(session)
        return {"rooms": list(found.values()), "counts": counts(session)}


PAGES = (
    Page("reactive", "/reactive", "reactive.html", _read),
    Page("pools", "/reactive/pools", "pools.html", _read_pools),
)
