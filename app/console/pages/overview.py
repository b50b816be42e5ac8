"""The first page: what runs, what waits, what is late, what is broken; and for each trouble the way to its cure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import glance
from app.console.pages import throughput
from app.console.web.memory import Remembered
from app.console.web.page import Page, Visit
from app.db import autocommit, transaction
from app.glance import REPAIRS_OF, Glance
from app.health import examining
from app.health.finding import Finding, Level

#: How often they are read, for all who look.
FIGURES_SECONDS, FINDINGS_SECONDS = 1.0, 10.0
#: By the name of a check: the page on which it can be cured, and what is asked of that page.
CURES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "workers": ("queues", {}),
    "services": ("queues", {}),
    "parked jobs": ("jobs", {"state": "parked"}),
    "periodic jobs": ("jobs", {}),
    "reactive tasks": ("reactive", {"state": "quarantined"}),
    "missed windows": ("reactive", {"state": "missed"}),
    "stage workers": ("stages", {}),
    "parked visits": ("parked", {}),
    "should_process": ("stages", {}),
    "resweeps": ("stages", {}),
    "broken processes": ("processes", {"state": "BROKEN"}),
    "process clocks": ("processes", {"state": "REGISTERED"}),
    "actors": ("actors", {}),
    "operations": ("operations", {}),
}


@dataclass(frozen=True)
class Seen:
    at: datetime
    now: Glance

    def sum_of_jobs(self, word: str) -> int:
        return sum(getattr(each, word) for each in self.now.queues if "jobs" in each.holds)


def _figures() -> Seen:
    with transaction() as session:
        return Seen(datetime.now(UTC), glance.look(session))


def _findings() -> list[Finding]:
    with autocommit() as connection:
        limit = sa.func.set_config("statement_timeout", f"{examining.QUERY_SECONDS}s", False)
        connection.execute(sa.select(limit))
        found = examining.glance(Session(connection))
    return sorted(found, key=lambda each: each.level is not Level.FAIL)


SEEN = Remembered(_figures, FIGURES_SECONDS).kept()
_TROUBLES = Remembered(_findings, FINDINGS_SECONDS).kept()


def _read(_: Visit) -> Mapping[str, Any]:
    return {
        "seen": SEEN.get(),
        "findings": _TROUBLES.get(),
        "cures": CURES,
        "repairs_of": REPAIRS_OF,
        "throughput": throughput.SEEN.get(),
    }


PAGES = (Page("overview", "/", "overview.html", _read),)
