"""Probes of the services that report: workers and schedulers to the database, beat by its file."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app import duties, shares, workers
from app.db import autocommit
from app.errors import DatabaseError, SettingsError
from app.health.broker import broker, kind_of
from app.health.events import LATE
from app.health.finding import Level
from app.health.sign import Sign, away, broken, well
from app.outbox import listing
from app.settings import settings
from app.words import span

#: A busy machine may be late with its reports; a service that is stuck stays late.
SCHEDULER_SILENT = 3 * shares.GONE
BEAT_SILENT = timedelta(seconds=30)
PING_SECONDS = 5.0
#: A duty that is looked after more seldom may be without a leader for as long, and nothing is wrong.
QUICK = timedelta(seconds=1)
_SERVER = "nothing is wrong with this service: look after the server, or its URL"


class Stop(Exception):
    """No further look is of any use; what was seen is its argument."""


@contextmanager
def _database() -> Iterator[Connection]:
    try:
        with autocommit() as connection:
            yield connection
    except (DatabaseError, SQLAlchemyError) as error:
        raise Stop(away("database", str(error).partition("\n")[0], _SERVER)) from error


def database() -> Iterator[Sign]:
    with _database() as connection:
        connection.execute(sa.select(1))
    yield well("database", "it answers")


def broker_answers() -> Iterator[Sign]:
    for finding in broker(settings().resolved_broker_url()):
        if finding.level is Level.FAIL:
            raise Stop(away("broker", finding.detail, finding.advice))
    yield well("broker", "it answers")


def full_name(name: str | None) -> str:
    """As Celery makes it: `mail` is `mail@<this host>`."""
    found = name or "celery"
    return found if "@" in found else f"{found}@{socket.gethostname()}"


def worker(name: str) -> Iterator[Sign]:
    """It has told the database of itself, and answers over the broker."""
    model = workers.Worker
    with _database() as connection:
        age = connection.execute(sa.select(_age(model.beat_at)).where(model.name == name)).scalar_one_or_none()
    report = _reported("worker", name, age, workers.GONE)
    yield report
    if not report.good:
        return
    yield from broker_answers()
    if _answers(name):
        yield well("tickets", f"{name} listens to the broker")
    else:
        yield broken("tickets", f"{name} is deaf: no answer within {PING_SECONDS:g} s", "start the worker again")


def _answers(name: str) -> bool:
    from celery import Celery

    from app.doorbell import transport_options

    url = settings().resolved_broker_url()
    # Not ours, which would need the user's modules and their tasks.
    asking = Celery("tidemill-probe", broker=url, set_as_current=False)
    asking.conf.update(broker_transport_options=transport_options(url), broker_connection_timeout=PING_SECONDS)
    try:
        return bool(asking.control.ping(destination=[name], timeout=PING_SECONDS, limit=1))
    except Exception as error:  # of the broker's client, whichever that is
        raise Stop(away("broker", f"it takes no message: {kind_of(error)}", _SERVER)) from error


def scheduler(*, alone: bool = False) -> Iterator[Sign]:
    """Its loop goes round, every duty has a leader, and what was saved is published. `alone`: of this one only."""
    model, host = shares.Scheduler, socket.gethostname()
    own = model.name.startswith(f"{host}/", autoescape=True)
    with _database() as connection:
        age = connection.execute(sa.select(_age(sa.func.max(model.beat_at))).where(own)).scalar_one_or_none()
        yield _reported("scheduler", f"on {host}", age, SCHEDULER_SILENT)
        if alone:
            return
        yield _led(connection)
        yield _relayed(Session(connection))


def _led(connection: Connection) -> Sign:
    import app.passes  # noqa: F401 - reads the settings, and fills the registry
    from app.registry import registry

    quick = {each.name for each in registry.passes.values() if each.scheduler and each.every <= QUICK}
    if missing := sorted(quick - duties.led(connection, quick)):
        return broken("duties", f"nobody leads {', '.join(missing)}", "start a scheduler: celery -A app scheduler")
    return well("duties", f"all {len(quick)} quick ones have a leader")


def _relayed(session: Session) -> Sign:
    lag = listing.lag(session)
    if lag.oldest is None or lag.oldest <= LATE:
        return well("relay", f"{lag.waiting} events wait to be published")
    waiting = f"{lag.waiting} events wait to be published, the first for {span(lag.oldest)}"
    if lag.error is not None:
        return away("relay", f"{waiting}: {lag.error}", "check the broker of TIDEMILL_EVENTS_URL")
    return broken("relay", waiting, "look at the log of the scheduler that leads the relay: tidemill events status")


def _age(moment: Any) -> Any:
    return sa.type_coerce(sa.func.clock_timestamp() - moment, sa.Interval)


def _reported(service: str, name: str, age: timedelta | None, most: timedelta) -> Sign:
    if age is None:
        return broken(
            "report",
            f"no {service} {name} has reported",
            f"start it: celery -A app {service}; a worker of another name: --name",
        )
    told = f"{service} {name} reported {span(age)} ago"
    return well("report", told) if age <= most else broken("report", told, f"start the {service} again")


def beat() -> Iterator[Sign]:
    """The broker took a message of it lately."""
    path = settings().beat_file
    if path is None:
        raise SettingsError("TIDEMILL_BEAT_FILE is not set: without it nothing tells of beat; set it for beat too")
    try:
        age = timedelta(seconds=max(0.0, time.time() - path.stat().st_mtime))
    except OSError:
        age = None
    if age is not None and age <= BEAT_SILENT:
        yield well("beat", f"it sent its last message {span(age)} ago")
        return
    yield from broker_answers()
    told = f"its last message was {span(age)} ago" if age is not None else f"it has not written {path} yet"
    yield broken("beat", told, "start beat again")
