"""What a service does with the tasks that are registered when it starts."""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery

from app.db import transaction
from app.jobs import known, schedules
from app.jobs.enqueue import JOBS, attempts_of, queue_of
from app.jobs.known import Known
from app.passes import CONTROL
from app.tasks import Ticketed

log = logging.getLogger(__name__)
_OWN = ("celery.", "tidemill.")


def user_tasks(app: Celery[Any]) -> dict[str, Any]:
    return {name: task for name, task in app.tasks.items() if not name.startswith(_OWN)}


def mix_in(app: Celery[Any]) -> None:
    """Tasks with a `base=` of their own understand tickets too."""
    for task in app.tasks.values():
        if not isinstance(task, Ticketed):
            own: Any = type(task)
            task.__class__ = type(own.__name__, (Ticketed, own), {"__module__": own.__module__})


def queues_of(app: Celery[Any]) -> list[str]:
    return sorted({JOBS, CONTROL, *(queue_of(task, {}) for task in user_tasks(app).values())})


def write(app: Celery[Any]) -> tuple[int, int]:
    """Tells the database the known tasks and the declared periodic jobs; how many of each."""
    schedules.loading(False)
    for name, task in user_tasks(app).items():
        if task.rate_limit:
            log.warning("%s: rate_limit=%r does not hold for durable jobs: limit its queue", name, task.rate_limit)
    tasks = [Known(name, queue_of(task, {}), attempts_of(task)) for name, task in user_tasks(app).items()]
    with transaction() as session:
        return known.register(session, tasks), schedules.write_declared(session)
