"""Jobs: what waits, runs or is parked, searched for; and how many in each queue."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import defer

from app import figures
from app.console.pages.patience import patient
from app.console.web.fields import Fields
from app.console.web.memory import Remembered, RememberedBy
from app.console.web.page import Page, Visit
from app.db import transaction
from app.figures import QueueFigures
from app.jobs.model import Job, JobState
from app.jobs.payload import RESERVED
from app.jobs.search import Filters, job_query

SHOWN = 50
#: How often it is read, for all who look at the same.
SECONDS = 1.0
WORDS = ("task", "queue", "key", "error", "arguments")


def _figures() -> list[QueueFigures]:
    with transaction() as session:
        return figures.queues(session)


#: Of all queues, also for other pages.
FIGURES = Remembered(_figures, SECONDS).kept()


def _search(query: Fields) -> list[Job]:
    state = query.choice("state", list(JobState))
    words: dict[str, Any] = {word: query.text(word) for word in WORDS}
    filters = Filters(**words, state=JobState(state) if state else None, after_id=query.number("after"))
    # What another program has put in may be more than can be read.
    found = job_query(filters).options(defer(Job.args), defer(Job.kwargs)).order_by(Job.id).limit(SHOWN + 1)
    with patient() as session:
        return list(session.scalars(found))


_found = RememberedBy(_search, SECONDS).kept()


def holds_jobs(queue: QueueFigures) -> bool:
    """Also one that is empty; those of stages, actors and pools never hold any."""
    return "jobs" in queue.holds and re.match(RESERVED, queue.name) is None


def _listed(visit: Visit) -> Mapping[str, Any]:
    rows = _found.get(visit.query)
    queues = [each for each in FIGURES.get() if holds_jobs(each)]
    return {
        "rows": rows[:SHOWN],
        "next": rows[SHOWN - 1].id if len(rows) > SHOWN else None,
        "queues": queues,
        "states": list(JobState),
        "filtered": any(visit.query.text(word) for word in (*WORDS, "state")),
    }


PAGES = (Page("jobs", "/jobs", "jobs.html", _listed),)
