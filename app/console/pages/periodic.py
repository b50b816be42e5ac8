"""Periodic jobs: their timetables, paused and resumed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from app.console.web.page import REASON, Act, Done, Page, Question, Undo, Visit
from app.db import transaction
from app.errors import NotFound
from app.jobs import operate
from app.jobs.model import PeriodicJob
from app.words import span

SHOWN = 200
#: As the checks have it.
LATE = timedelta(seconds=30)
_TABLE = PeriodicJob.__table__
_WANTED = ("name", "task", "queue", "cron", "every", "tz", "catch_up", "paused", "next_at", "fired_at")


def _when(row: Any) -> str:
    return f"every {span(row.every)}" if row.every is not None else f"{row.cron} {row.tz}"


def _listed(visit: Visit) -> Mapping[str, Any]:
    query = sa.select(*(_TABLE.c[word] for word in _WANTED)).order_by(_TABLE.c.name).limit(SHOWN + 1)
    if after := visit.query.text("after"):
        query = query.where(_TABLE.c.name > after)
    with transaction() as session:
        rows = session.execute(query).all()
    next_ = rows[SHOWN - 1].name if len(rows) > SHOWN else None
    late = datetime.now(UTC) - LATE
    return {"rows": [(each, _when(each)) for each in rows[:SHOWN]], "next": next_, "late": late}


def _found(visit: Visit) -> Any:
    name = visit.query.needed("name")
    with transaction() as session:
        query = sa.select(*(_TABLE.c[word] for word in _WANTED)).where(_TABLE.c.name == name)
        row = session.execute(query).one_or_none()
    if row is None:
        raise NotFound(f"no periodic job is named {name!r:.100}")
    return row


def _ask_pause(visit: Visit) -> Question:
    row = _found(visit)
    says = [f"It runs {_when(row):.200} and does not fire until it is resumed. What it has put in stays."]
    obstacle = "It is paused already." if row.paused else None
    return Question(f"Pause {row.name:.200}?", says, "Pause", [REASON], obstacle=obstacle, back="/periodic")


def _pause(visit: Visit) -> Done:
    name = _found(visit).name
    operate.pause_periodic(name, reason=visit.form.text("reason"))
    return Done(f"{name:.200} is paused.", "/periodic", Undo("resume_periodic", {"name": name}, "Resume"))


def _ask_resume(visit: Visit) -> Question:
    row = _found(visit)
    says = [f"It fires again {_when(row):.200}; of what it missed, as its catch-up says: {row.catch_up:.50}."]
    obstacle = None if row.paused else "It is not paused."
    return Question(f"Resume {row.name:.200}?", says, "Resume", [REASON], obstacle=obstacle, back="/periodic")


def _resume(visit: Visit) -> Done:
    name = _found(visit).name
    operate.resume_periodic(name, reason=visit.form.text("reason"))
    return Done(f"{name:.200} fires again.", "/periodic", Undo("pause_periodic", {"name": name}, "Pause"))


PAGES = (Page("periodic", "/periodic", "periodic.html", _listed),)
ACTS = (
    Act("pause_periodic", "/periodic/pause", _ask_pause, _pause),
    Act("resume_periodic", "/periodic/resume", _ask_resume, _resume),
)
