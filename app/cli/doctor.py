"""`tidemill doctor`: everything that must be right, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict

import click
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from app.cli.health import broker, database, here, triggers, work
from app.cli.health.finding import Finding, Level, fail, ok, warn
from app.cli.output import document, json_option
from app.db import autocommit
from app.errors import DatabaseError, SettingsError
from app.settings import settings

COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}
#: The longest that one query may take: a doctor must not become an illness.
QUERY_SECONDS = 20


@click.command()
@json_option
def doctor(*, as_json: bool) -> None:
    """Checks everything, and says what to do.

    Settings, database, broker, workers, data: exit 1 if anything fails.

    \b
    Examples:
      tidemill doctor
      tidemill doctor --json | jq '.findings[] | select(.level != "ok")'
    """
    found = []
    for finding in examine():
        found.append(finding)
        if not as_json:
            _show(finding)
    failed = any(finding.level is Level.FAIL for finding in found)
    if as_json:
        document({"healthy": not failed, "findings": [asdict(each) for each in found]})
    if failed:
        click.get_current_context().exit(1)


def _show(finding: Finding) -> None:
    mark = click.style(f"{finding.level:5}", fg=COLOURS[finding.level], bold=finding.level is not Level.OK)
    click.echo(f"{mark} {finding.check:14} {finding.detail}")
    if finding.advice:
        click.echo(f"{'':21}→ {finding.advice}")


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
    checks: tuple[tuple[str, Callable[[Session], Finding | list[Finding]]], ...] = (
        ("scheduler", work.services),
        ("leases", work.leases),
        ("periodic jobs", work.timetables),
        ("reactive tasks", triggers.tasks),
        ("triggers", triggers.sound),
        ("invariants", work.sound),
    )
    for name, check in checks:
        try:
            found = check(session)
        except OperationalError as error:
            if getattr(error.orig, "pgcode", None) != "57014":  # query_canceled: by our own limit
                raise
            yield warn(
                name, f"not finished within {QUERY_SECONDS} s", "look at the load of the database, and try again"
            )
            continue
        yield from found if isinstance(found, list) else [found]
