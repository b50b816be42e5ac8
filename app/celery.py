"""The Celery application: `celery -A app worker | beat | scheduler | flower`."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from contextlib import suppress
from functools import partial
from importlib.machinery import ModuleSpec
from typing import Any

import sqlalchemy as sa
from billiard.util import get_pdeathsig  # type: ignore[attr-defined]  # its stubs do not know it
from celery import Celery, signals
from click import ClickException, Option, get_current_context
from kombu import Connection
from kombu.asynchronous.timer import Timer
from kombu.transport.virtual import Channel
from sqlalchemy.exc import SQLAlchemyError

from app import beat, doorbell, logs, tracing
from app.alarm import alarm
from app.checks import encodable
from app.db import autocommit, become_worker_child, dispose
from app.doorbell import GENERIC
from app.errors import DatabaseError, SettingsError
from app.jobs import schedules
from app.jobs.run import warm_up
from app.near import shown
from app.registration import become_job, become_task, mix_in, queues_of
from app.registry import registry
from app.settings import settings
from app.stopping import stopping
from app.tasks import Ticketed
from app.worker import Service
from processes.definition import declared as actors
from processes.serving import warm_up as warm_up_decisions
from stages.serving import warm_up as warm_up_visits
from stages.watched import kinds

log = logging.getLogger(__name__)
_WITH_DATABASE = {"worker", "scheduler"}
_WITH_MODULES = {*_WITH_DATABASE, "beat", "flower"}
# When the broker goes away, kombu puts tickets that were not acknowledged back over the connection that is gone; the
# error of that ends the worker. They are worth nothing: dispatch rings again.
Channel.do_restore = False
app = Celery("tidemill", task_cls=Ticketed)
# Not `celeryconfig`: a user may have one, for another application.
app.config_from_object("app.celeryconfig")
app.set_default()
app.user_options["worker"].add(
    Option(["--drain"], is_flag=True, help="Tidemill: end when nothing is ready in the queues of this worker.")
)
# Celery tells that a command begins only where there is an option of all commands.
app.user_options["preload"].add(Option(["--tidemill"], is_flag=True, hidden=True))
app.steps["worker"].add(Service)
registry.on_function(partial(become_task, app))
registry.on_hook(partial(become_job, app))


if "flower.command" in sys.modules and "flower" in sys.argv:
    # Which Celery's command line loads for any command, and runs only for this one.
    from app.flower import prepare

    prepare()


@signals.user_preload_options.connect(weak=False)
def _begin(**_: Any) -> None:
    """Every command of Celery comes here first: one sentence instead of a traceback. What is raised here would only be
    logged."""
    try:
        _check_settings(str(get_current_context().info_name))
    except ClickException as error:
        error.show()
        sys.exit(error.exit_code)


def _check_settings(command: str) -> None:
    if wrong := [word for word in sys.argv if not encodable(word)]:
        raise ClickException(f"{shown(wrong[0])} is not UTF-8")
    try:
        settings().resolved_broker_url()
        if command in _WITH_DATABASE:
            settings().resolved_database_url()
        tracing.check()
    except SettingsError as error:
        raise ClickException(str(error)) from None
    for name, url in (("BROKER", settings().resolved_broker_url()), ("EVENTS", settings().resolved_events_url())):
        try:
            Connection(url).create_transport()
        except Exception as error:  # noqa: BLE001 - each kind of broker says in its own way that its driver is missing
            raise ClickException(f"TIDEMILL_{name}_URL: what speaks to such a broker is not here: {error}") from None
    for module in settings().modules if command in _WITH_MODULES else ():
        if not _is_there(module):
            raise ClickException(f"TIDEMILL_MODULES: there is no module {module!r} on the path of this process")


def _is_there(module: str) -> bool:
    """Found without importing the packages on the way to it: what they do is done where the service imports them, and
    what they lack is told there."""
    names, path = module.split("."), None
    for count in range(1, len(names) + 1):
        if (found := sys.modules.get(name := ".".join(names[:count]))) is not None:
            path = getattr(found, "__path__", None)
        elif (spec := _spec(name, path)) is not None:
            path = spec.submodule_search_locations
        else:
            return False
        if path is None and count < len(names):
            return False
    return True


def _spec(name: str, path: Any) -> ModuleSpec | None:
    found = (finder.find_spec(name, path) for finder in sys.meta_path) if name.rpartition(".")[2] else ()
    with suppress(ImportError, ValueError):
        return next((spec for spec in found if spec is not None), None)
    return None


@signals.import_modules.connect(weak=False)
def _collect_periodic_jobs(**_: Any) -> None:
    schedules.loading(True)


@app.on_after_finalize.connect(weak=False)
def _mix_in(**_: Any) -> None:
    mix_in(app)


@signals.celeryd_after_setup.connect(weak=False)
def _take_every_queue(instance: Any, **_: Any) -> None:
    """Without `-Q`, a worker takes the queues of every registered task, but for those of `-X`."""
    mix_in(app)
    queues = instance.app.amqp.queues
    if queues._consume_from is None:
        context = get_current_context(silent=True)
        excluded = (context.params.get("exclude_queues") if context else None) or ()
        for name in queues_of(app):
            if name not in excluded:
                queues.select_add(queues.new_missing(name))


@signals.worker_init.connect(weak=False)
def _warm_up(**_: Any) -> None:
    """What every child would build for itself is built here once, and shared with all of them."""
    # Its child will say that it is to end with its parent. Where cffi is installed, as with anything that needs
    # cryptography, billiard says so by way of a parser of C, whose making would cost each child some megabytes.
    with suppress(OSError):
        get_pdeathsig()
    warm_up()
    if kinds:
        warm_up_visits()
    if actors:
        warm_up_decisions()
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


#: A batch makes some thousand objects that live as long as it does and need no collector; by default it would go
#: through them every 700, which takes a sixth of the time of a visit in Python.
_GARBAGE = (20_000, 10, 10)


FORGET_SECONDS = 10.0


@signals.worker_ready.connect(weak=False)
def _forget_cancelled(sender: Any, **_: Any) -> None:
    """Celery sets a timer for what it hands to a child, and keeps it until its time even when it is cancelled. That of
    a ticket, which has no limit, would be kept for ever: some 350 bytes for each."""
    if isinstance(sender.timer, Timer):
        sender.timer.call_repeatedly(FORGET_SECONDS, forget_cancelled, (sender.timer,))


def forget_cancelled(timer: Timer) -> None:
    left = [each for each in timer.queue if not each.entry.canceled]
    timer.clear()
    for each in left:
        timer.enter_at(each.entry, each.eta, each.priority)


@signals.worker_process_init.connect(weak=False)
def _child_begins(**_: Any) -> None:
    gc.set_threshold(*_GARBAGE)
    become_worker_child()
    alarm.install()
    alarm.hand_back = stopping.is_over


@signals.worker_process_shutdown.connect(weak=False)
def _child_ends(**_: Any) -> None:
    tracing.flush()


@signals.beat_init.connect(weak=False)
def _stop_between_messages(sender: Any, **_: Any) -> None:
    """Celery's own handler closes the connection under a message that is being sent; the error that comes of it may
    take the place of the exit, and beat goes on."""

    def stop(number: int, _frame: Any) -> None:
        # A second signal ends it at once: the broker may hold up the message.
        signal.signal(number, signal.default_int_handler)
        sender.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    beat.show_at(settings().beat_file)


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
    logs.set_up_others(logger, _service())


@signals.after_setup_task_logger.connect(weak=False)
def _task_log(logger: Any, **_: Any) -> None:
    logs.set_up_others(logger, _service())


def _service() -> str:
    return next((word for word in sys.argv if word in ("worker", "beat")), "celery")
