"""Actors as a list: what waits for each, what is in work and broken, under which settings. Their code need not be
there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app import limits, workers
from app.claims import Lane
from app.claims.model import is_running, is_waiting
from app.clock import Rate
from app.words import COUNTED
from processes.definition import SETTINGS
from processes.model import BROKEN_TASK, DECISION, PREFERENCES, PREFIX, Decision, queue_of

#: Whoever polls does so more often than this.
UNPOLLED = timedelta(minutes=1)
_QUEUE = cast(sa.Table, limits.Queue.__table__)
#: What a queue has that was never limited.
_UNLIMITED: dict[str, Any] = {
    "blocked": False,
    "rests_why": None,
    "rests_until": None,
    "rate_limit": None,
    "max_parallel": None,
}


@dataclass(frozen=True)
class Listed:
    """An actor, or a decider. Of very many tasks, as many are counted as `COUNTED`."""

    name: str
    decider: bool
    outside: bool
    module: str
    task: str
    #: Tasks that may be handed out now; later ones, because of a delay or after a failure; those in work; broken ones.
    ready: int
    later: int
    in_work: int
    broken: int
    #: How long the first of the ready ones has been ready.
    oldest: timedelta | None
    #: Answers that did not come in time, since it was first declared.
    work_timeouts: int
    #: Of live workers.
    slots: int
    blocked: bool
    #: What its work needs does not answer: nothing is handed out until then, and after that one by one.
    rests_why: str | None
    rests_until: datetime | None
    rate_limit: str | None
    max_parallel: int | None
    #: What holds now, and what the code says, by the names of the settings.
    settings: Mapping[str, Any]
    declared: Mapping[str, Any]
    removed_at: datetime | None

    @property
    def queue(self) -> str:
        return queue_of(self.name)

    @property
    def unpolled(self) -> bool:
        """Outside, its first task is ready for a while and nothing is in work: whoever polls would have taken it."""
        waits = self.oldest is not None and self.oldest > UNPOLLED
        return self.outside and waits and not self.in_work and not self.blocked and self.rests_why is None

    @property
    def changed(self) -> list[str]:
        """The settings that are not those of the code."""
        return [word for word, value in self.settings.items() if self.declared.get(word) != plain(value)]


def plain(value: Any) -> Any:
    """As the code's settings are stored: spans in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def actors(session: Session, name: str | None = None) -> list[Listed]:
    """By name; those that are not declared any more only where something is left for them, or when named."""
    query = sa.select(*PREFERENCES.c).order_by(PREFERENCES.c.name)
    rows = session.execute(query if name is None else query.where(PREFERENCES.c.name == name)).all()
    slots = workers.slots(session)
    depths = {row.name: row for row in session.execute(_depths(name))}
    queues = {row.name: row for row in session.execute(_queues())}
    listed = [
        _listed(row, depths[row.name], queues.get(queue_of(row.name)), slots.get(queue_of(row.name), 0)) for row in rows
    ]
    return [
        each
        for each in listed
        if name is not None or each.removed_at is None or each.ready + each.later + each.in_work + each.broken
    ]


def _listed(row: Row[Any], deep: Row[Any], queue: Row[Any] | None, slots: int) -> Listed:
    of_row = ("name", "decider", "outside", "module", "task", "work_timeouts", "removed_at")
    of_depth = ("ready", "later", "in_work", "broken", "oldest")
    bounds = _UNLIMITED if queue is None else _bounds(queue)
    of_queue = {"rate_limit": bounds["rate_limit"], "max_parallel": bounds["max_parallel"]}
    return Listed(
        **{word: getattr(row, word) for word in of_row},
        **{word: getattr(deep, word) for word in of_depth},
        **bounds,
        slots=slots,
        settings={word: getattr(row, word) for word in SETTINGS} | of_queue,
        declared=row.declared,
    )


def _bounds(row: Row[Any]) -> dict[str, Any]:
    return {
        "blocked": row.paused,
        "rests_why": row.rests_why,
        "rests_until": row.rests_until,
        "rate_limit": None if row.rate is None else str(Rate(row.rate)),
        "max_parallel": row.max_parallel,
    }


def _queues() -> sa.Select[Any]:
    return sa.select(*_QUEUE.c).where(_QUEUE.c.name.startswith(f"{PREFIX}.", autoescape=True))


def _depths(name: str | None) -> sa.Select[Any]:
    """Of each actor, by the indexes of what waits, runs and is broken."""
    own, now = DECISION.c.queue == sa.literal(queue_of("")) + PREFERENCES.c.name, sa.func.now()
    # Of the index, and no more of it than is counted.
    waits = sa.select(Decision.ready(Lane.MAIN).label("at")).where(own, is_waiting(Decision)).limit(COUNTED)
    waiting = waits.correlate(PREFERENCES).subquery("waiting")
    is_ready = waiting.c.at <= now
    depth = sa.select(
        sa.func.count().filter(is_ready).label("ready"),
        sa.func.count().filter(~is_ready).label("later"),
        (now - sa.func.min(waiting.c.at).filter(is_ready)).label("oldest"),
    ).select_from(waiting)
    deep = depth.lateral("deep")

    def count(*conditions: Any) -> Any:
        rows = sa.select(sa.literal(1)).where(*conditions).limit(COUNTED).correlate(PREFERENCES).subquery()
        return sa.select(sa.func.count()).select_from(rows).scalar_subquery()

    query = sa.select(
        PREFERENCES.c.name,
        deep.c.ready,
        deep.c.later,
        deep.c.oldest,
        count(own, is_running(Decision)).label("in_work"),
        count(BROKEN_TASK.c.actor == PREFERENCES.c.name).label("broken"),
    ).select_from(PREFERENCES.join(deep, sa.true()))
    return query if name is None else query.where(PREFERENCES.c.name == name)
