"""The Celery application: `celery -A app worker | beat | scheduler | flower`."""

from __future__ import annotations

import gc
import logging
import sys
from functools import partial
from typing import Any

import sqlalchemy as sa
from celery import Celery, signals
from click import ClickException, Option
from sqlalchemy.exc import SQLAlchemyError

from app import doorbell
from app.alarm import alarm
from app.db import autocommit, become_worker_child, dispose
from app.doorbell import GENERIC
from app.errors import DatabaseError, SettingsError
from app.jobs import schedules
from app.jobs.run import warm_up
from app.registration import become_task, mix_in, queues_of
from app.registry import registry
from app.settings import settings
from app.stopping import stopping
from app.tasks import Ticketed
from app.worker import Service

log = logging.getLogger(__name__)
app = Celery("tidemill", task_cls=Ticketed)
app.config_from_object("celeryconfig")
app.set_default()
app.user_options["worker"].add(
    Option(["--drain"], is_flag=True, help="Tidemill: end when nothing is ready in the queues of this worker.")
)
app.steps["worker"].add(Service)
registry.on_function(partial(become_task, app))


@signals.user_preload_options.connect(weak=False)
def _check_settings(**_: Any) -> None:
    """Every command of Celery comes here first: one sentence instead of a traceback."""
    try:
        settings().resolved_broker_url()
        settings().resolved_database_url()
    except SettingsError as error:
        raise ClickException(str(error)) from None


@signals.import_modules.connect(weak=False)
def _collect_periodic_jobs(**_: Any) -> None:
    schedules.loading(True)


@app.on_after_finalize.connect(weak=False)
def _mix_in(**_: Any) -> None:
    mix_in(app)


@signals.celeryd_after_setup.connect(weak=False)
def _take_every_queue(instance: Any, **_: Any) -> None:
    """Without `-Q`, a worker takes the queues of every registered task."""
    mix_in(app)
    queues = instance.app.amqp.queues
    if queues._consume_from is None:
        for name in queues_of(app):
            queues.select_add(queues.new_missing(name))


@signals.worker_init.connect(weak=False)
def _warm_up(**_: Any) -> None:
    """What every child would build for itself is built here once, and shared with all of them."""
    warm_up()
    try:
        with autocommit() as connection:
            connection.execute(sa.select(1))
    except (SQLAlchemyError, DatabaseError) as error:
        log.warning("the database is not there yet: %s", error)
    dispose()


@signals.worker_before_create_process.connect(weak=False)
def _freeze(**_: Any) -> None:
    """What is there before a child is made stays shared with it: a collection there would write to every object."""
    gc.collect()
    gc.freeze()


@signals.worker_process_init.connect(weak=False)
def _child_begins(**_: Any) -> None:
    become_worker_child()
    alarm.install()
    alarm.hand_back = stopping.is_over


@signals.task_unknown.connect(weak=False)
def _ring_again(message: Any, **_: Any) -> None:
    """A ticket under the name of a task that this worker does not know: the queue may hold others."""
    ticket = (message.headers or {}).get(doorbell.TICKET)
    if isinstance(ticket, dict) and isinstance(ticket.get("queue"), str):
        doorbell.ring(ticket["queue"], GENERIC)


@signals.after_setup_logger.connect(weak=False)
def _log_level(logger: Any, **_: Any) -> None:
    if not any(word.startswith(("-l", "--loglevel")) for word in sys.argv):
        logger.setLevel(settings().log_level)
