"""What a service does with the tasks that are registered when it starts."""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery

from app import schema
from app.db import transaction
from app.jobs import known, schedules
from app.jobs.enqueue import JOBS, attempts_of, queue_of
from app.jobs.known import Known
from app.passes import CONTROL
from app.registry import Function, Hook, registry
from app.tasks import Owned, Ticketed, called
from stages.sync import queues as stage_queues

log = logging.getLogger(__name__)
_OWN = ("celery.", "tidemill.")
#: Between two tries of a hook.
BACKOFF_MOST_SECONDS = 300


def user_tasks(app: Celery[Any]) -> dict[str, Any]:
    """Those that can be enqueued as jobs."""
    ours = {name for name, each in registry.functions.items() if each.function is not None}
    return {name: task for name, task in app.tasks.items() if not name.startswith(_OWN) and name not in ours}


def become_task(app: Celery[Any], each: Function) -> None:
    """A function of a domain, as a Celery task under its own name."""
    if each.function is None:
        return
    if getattr(app, "finalized", False):
        # A module that is imported anew; Celery would keep the old function.
        app.tasks.pop(each.name, None)
    options: dict[str, Any] = {"name": each.name, "time_limit": each.time_limit, "base": Owned}
    if each.quiet:
        options["throws"] = (Exception,)
    app.task(**options)(each.function)


def become_job(app: Celery[Any], each: Hook) -> None:
    """A hook of a domain, as a Celery task whose jobs are tried again when it raises, later each time."""
    if getattr(app, "finalized", False):
        app.tasks.pop(each.name, None)
    options: dict[str, Any] = {
        "name": each.name,
        "time_limit": each.time_limit,
        "max_retries": each.max_attempts - 1,
        "autoretry_for": (Exception,),
        "retry_backoff": True,
        "retry_backoff_max": BACKOFF_MOST_SECONDS,
    }
    app.task(**options)(each.function)


def mix_in(app: Celery[Any]) -> None:
    """Tasks with a `base=` of their own are jobs too. What that base does comes first."""
    for task in app.tasks.values():
        if not isinstance(task, Ticketed):
            own: Any = type(task)
            task.__class__ = type(own.__name__, (own, Ticketed), {"__module__": own.__module__, "__call__": called})


def queues_of(app: Celery[Any]) -> list[str]:
    own = {each.queue for each in registry.functions.values()}
    periodic = {each.values["queue"] for each in schedules.declared.values()}
    of_tasks = {queue_of(task, {}) for task in user_tasks(app).values()}
    return sorted({JOBS, CONTROL, *own, *stage_queues(), *periodic, *of_tasks})


def write(app: Celery[Any]) -> list[str]:
    """Tells the database what the modules declare; what there is to say of it. `NotMigrated` where that is older."""
    with transaction() as session:
        schema.refuse_older(session)
    schedules.loading(False)
    for name, task in user_tasks(app).items():
        if task.rate_limit:
            log.warning("%s: rate_limit=%r does not hold for durable jobs: limit its queue", name, task.rate_limit)
    tasks = [Known(name, queue_of(task, {}), attempts_of(task)) for name, task in user_tasks(app).items()]
    with transaction() as session:
        told = [f"tasks: {known.register(session, tasks)} known, {schedules.write_declared(session)} periodic"]
    told += [line for declare in registry.declarations for line in declare()]
    for line in told:
        log.info("%s", line)
    return told
