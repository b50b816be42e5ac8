"""The checks in their order: all of them for `tidemill doctor`, and those that are cheap for the console's overview."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from app.db import autocommit
from app.errors import DatabaseError, SettingsError
from app.health import broker, database, events, here, processes, recovery, stages, triggers, work
from app.health.finding import Finding, Level, fail, ok, warn
from app.settings import settings

#: The longest that one query may take: a doctor must not become an illness.
QUERY_SECONDS = 20
_Check = Callable[[Session], Finding | list[Finding]]
#: They read by index, and little.
CHEAP: tuple[tuple[str, _Check], ...] = (
    ("scheduler", work.services),
    ("leases", work.leases),
    ("services", work.resting),
    ("parked jobs", work.parked),
    ("periodic jobs", work.timetables),
    ("reactive tasks", triggers.tasks),
    ("reactive service", triggers.service),
    ("missed windows", triggers.windows),
    ("watched tables", stages.tables),
    ("stage workers", stages.taken),
    ("parked visits", stages.visits),
    ("should_process", stages.questions),
    ("resweeps", stages.walks),
    ("shards", stages.shards),
    ("broken processes", processes.broken),
    ("process clocks", processes.overdue),
    ("actors", processes.actors),
    ("repairs", recovery.repairs),
    ("operations", recovery.ongoing),
    ("events", events.relayed),
)
THOROUGH: tuple[tuple[str, _Check], ...] = (
    ("unknown tasks", work.unknown),
    ("triggers", triggers.sound),
    ("invariants", work.sound),
)


def examine() -> Iterator[Finding]:
    yield here.python()
    configured = here.configured()
    yield from configured
    bad = {finding.check for finding in configured if finding.level is Level.FAIL}
    if "settings" in bad:
        return
    if "database URL" not in bad:
        yield from _database()
    if "broker URL" not in bad:
        yield from broker.broker(settings().resolved_broker_url())


def _database() -> Iterator[Finding]:
    try:
        with autocommit() as connection:
            yield ok("database", "it answers")
            connection.execute(sa.select(sa.func.set_config("statement_timeout", f"{QUERY_SECONDS}s", False)))
            yield database.version(connection)
            yield database.clock(connection)
            schema = database.schema(connection)
            yield schema
            if schema.level is not Level.OK:
                return
            rights = database.rights(connection)
            yield rights
            if rights.level is Level.OK:
                yield from _work(Session(connection))
    except (DatabaseError, SettingsError, SQLAlchemyError, ValueError) as error:
        yield fail("database", str(error).partition("\n")[0], "check TIDEMILL_DATABASE_URL and the server")


def _work(session: Session) -> Iterator[Finding]:
    queues, workers = work.figures_of(session)
    alive = [each for each in workers if each.alive]
    yield database.connections(session.connection(), len(alive), sum(each.slots for each in alive))
    yield from work.taken(queues, workers)
    yield from _each(session, CHEAP + THOROUGH)


def glance(session: Session) -> list[Finding]:
    """What is not well, as far as that is cheap to see."""
    found = [*work.taken(*work.figures_of(session)), *_each(session, CHEAP)]
    return [each for each in found if each.level is not Level.OK]


def _each(session: Session, checks: tuple[tuple[str, _Check], ...]) -> Iterator[Finding]:
    for name, check in checks:
        try:
            found = check(session)
        except OperationalError as error:
            if getattr(error.orig, "pgcode", None) != "57014":  # query_canceled: by our own limit
                raise
            session.rollback()
            detail = f"not finished within {QUERY_SECONDS} s"
            yield warn(name, detail, "look at the load of the database, and try again")
            continue
        yield from found if isinstance(found, list) else [found]
