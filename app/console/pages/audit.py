"""Who changed what by hand, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from app.audit import Audit
from app.console.web.page import Page, Visit
from app.db import transaction

SHOWN = 50


def _read(visit: Visit) -> Mapping[str, Any]:
    """The newest first; each filter has an index that is in this order."""
    subject, actor, before = visit.query.text("subject"), visit.query.text("actor"), visit.query.number("before")
    query = sa.select(Audit).order_by(Audit.id.desc()).limit(SHOWN + 1)
    if subject is not None:
        query = query.where(Audit.subject == subject)
    if actor is not None:
        query = query.where(Audit.actor == actor)
    if before is not None:
        query = query.where(Audit.id < before)
    with transaction() as session:
        rows = list(session.scalars(query))
    older = rows[SHOWN - 1].id if len(rows) > SHOWN else None
    return {"rows": rows[:SHOWN], "older": older, "filtered": subject is not None or actor is not None}


PAGES = (Page("audit", "/audit", "audit.html", _read),)
