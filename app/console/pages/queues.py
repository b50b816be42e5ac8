"""Queues with their limits, the workers that serve them and what these hold, the services and the leaders of duties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import duties, figures, queues
from app.claims.model import is_running
from app.clock import Rate
from app.console.pages import limiting
from app.console.pages.jobs import FIGURES, holds_jobs
from app.console.web.fields import address
from app.console.web.memory import Remembered
from app.console.web.page import REASON, Act, Done, Page, Question, Undo, Visit
from app.db import transaction
from app.errors import NotFound
from app.figures import QueueFigures, WorkerFigures, since
from app.limits import Queue
from app.registry import registry
from app.schema import CLAIMABLE
from app.shares import GONE, Scheduler

SECONDS = 1.0


@dataclass(frozen=True)
class Service:
    """A scheduler."""

    name: str
    started_at: datetime
    last_beat: timedelta
    alive: bool


@dataclass(frozen=True)
class Seen:
    workers: list[WorkerFigures]
    #: By worker, and what is nobody's of those that have reported.
    held: Mapping[str, int]
    services: list[Service]
    #: Duties, and whether somebody leads them at this moment.
    duties: Mapping[str, bool]
    #: Of queues with a rate: how many calls may be made at once now.
    tokens: Mapping[str, float]


def _read() -> Seen:
    with transaction() as session:
        names = sorted(each.name for each in registry.passes.values() if each.scheduler and not each.shared)
        led = duties.led(session, names)
        return Seen(
            figures.live_and_gone(session),
            _held(session),
            _services(session),
            {name: name in led for name in names},
            _tokens(session),
        )


def _held(session: Session) -> dict[str, int]:
    """What runs, by the worker whose child has it."""
    found: dict[str, int] = {}
    for model in CLAIMABLE:
        worker = sa.func.split_part(sa.func.coalesce(model.claimed_by, ""), "/", 1)
        query = sa.select(worker, sa.func.count()).where(is_running(model)).group_by(worker)
        for name, count in session.execute(query):
            found[name] = found.get(name, 0) + count
    return found


def _services(session: Session) -> list[Service]:
    age = since(Scheduler.beat_at)
    query = sa.select(Scheduler.name, Scheduler.started_at, age, age < GONE).order_by(Scheduler.name)
    return [Service(*row) for row in session.execute(query)]


def _tokens(session: Session) -> dict[str, float]:
    idle = sa.func.greatest(sa.cast(sa.extract("epoch", sa.func.now() - Queue.refilled_at), sa.Double), 0)
    now = sa.func.least(Queue.burst, Queue.tokens + idle * Queue.rate)
    return {row[0]: row[1] for row in session.execute(sa.select(Queue.name, now).where(Queue.rate.is_not(None)))}


_SEEN = Remembered(_read, SECONDS).kept()


def _listed(visit: Visit) -> Mapping[str, Any]:
    found = FIGURES.get()
    text = visit.query.text("name")
    return {
        "queues": [each for each in found if text is None or text in each.name],
        "seen": _SEEN.get(),
        "text": text,
        "of_jobs": {each.name for each in found if holds_jobs(each)},
    }


def _named(visit: Visit) -> str:
    name = visit.query.needed("name")
    with transaction() as session:
        if not queues.is_known(session, name) and all(each.name != name for each in FIGURES.get()):
            raise NotFound(f"no task, job or worker has a queue {name!r:.100}")
    return name


def _of(name: str) -> QueueFigures:
    """Its limits, as they are now."""
    with transaction() as session:
        row = session.execute(sa.select(*Queue.__table__.c).where(Queue.name == name)).one_or_none()
    if row is None:
        return QueueFigures(name)
    rate = None if row.rate is None else str(Rate(row.rate))
    words = {"paused": row.paused, "rests_why": row.rests_why, "max_parallel": row.max_parallel}
    return QueueFigures(name, rate=rate, burst=row.burst, **words)


def _home(name: str) -> str:
    return address("/queues", name=name)


def _ask_pause(visit: Visit) -> Question:
    queue = _of(_named(visit))
    says = ["Nothing more of it is started, by the whole cluster. What runs may end; what is put in waits."]
    obstacle = "It is paused already." if queue.paused else None
    title = f"Pause the queue {queue.name}?"
    return Question(title, says, "Pause", [REASON], obstacle=obstacle, back=_home(queue.name))


def _pause(visit: Visit) -> Done:
    name = _named(visit)
    queues.pause(name, reason=visit.form.text("reason"))
    return Done(f"The queue {name} is paused.", _home(name), Undo("resume_queue", {"name": name}, "Resume"))


def _ask_resume(visit: Visit) -> Question:
    queue = _of(_named(visit))
    says = ["What waits is started again; where its service was away, it is tried at once."]
    obstacle = None if queue.paused or queue.rests_why else "It is not paused."
    title = f"Resume the queue {queue.name}?"
    return Question(title, says, "Resume", [REASON], obstacle=obstacle, back=_home(queue.name))


def _resume(visit: Visit) -> Done:
    name = _named(visit)
    queues.resume(name, reason=visit.form.text("reason"))
    return Done(f"The queue {name} is open.", _home(name), Undo("pause_queue", {"name": name}, "Pause"))


def _ask_limit(visit: Visit) -> Question:
    queue = _of(_named(visit))
    inputs = limiting.inputs(queue.rate, queue.max_parallel, queue.burst)
    says = ["For the whole cluster, from the next claim on."]
    return Question(f"Limits of the queue {queue.name}", says, "Set", [*inputs, REASON], back=_home(queue.name))


def _limit(visit: Visit) -> Done:
    queue = _of(_named(visit))
    before = {"rate": queue.rate, "max_parallel": queue.max_parallel, "burst": queue.burst or 1.0}
    changes = limiting.changes(visit.form, before)
    queues.limit(queue.name, reason=visit.form.text("reason"), **changes)
    back = limiting.fields(queue.rate, queue.max_parallel, queue.burst)
    undo = Undo("limit_queue", {"name": queue.name, **back})
    return Done(f"The queue {queue.name}: {limiting.told(changes)}.", _home(queue.name), undo)


PAGES = (Page("queues", "/queues", "queues.html", _listed),)
ACTS = (
    Act("pause_queue", "/queue/pause", _ask_pause, _pause),
    Act("resume_queue", "/queue/resume", _ask_resume, _resume),
    Act("limit_queue", "/queue/limit", _ask_limit, _limit),
)
