"""`tidemill migrate`: the schema, the known tasks, the rights of roles."""

from __future__ import annotations

import logging

import click
import sqlalchemy as sa

from app import migrate as schema
from app.cli import grants, modules
from app.cli.output import document, json_option
from app.db import SCHEMA, engine
from app.errors import DatabaseError
from app.settings import settings

_CALLS = ", ".join(f"{SCHEMA}.{name}" for name in grants.OF_PRODUCERS)


class _Progress(logging.Handler):
    """What Alembic says about each step, as a line on stdout."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.INFO and "upgrade" in (text := record.getMessage()):
            click.echo(f"  {text[0].lower()}{text[1:]}")


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if the schema is not that of this release.")
@click.option("--grant", "roles", metavar="ROLE", multiple=True, help="Give ROLE what workers and services need.")
@click.option(
    "--grant-producer",
    "producers",
    metavar="ROLE",
    multiple=True,
    help=f"Let ROLE call the functions of producers and nothing else: {_CALLS}.",
)
@json_option
def migrate(*, check: bool, roles: tuple[str, ...], producers: tuple[str, ...], as_json: bool) -> None:
    """Brings the schema to this release.

    Run it with every deployment. It also makes the tasks of TIDEMILL_MODULES known to producers in SQL, and gives roles
    their rights. The rights are those on what there is now: name the roles each time.

    \b
    Examples:
      tidemill migrate
      tidemill migrate --check --json
      tidemill migrate --grant shop_worker --grant-producer shop_web
    """
    if check:
        if roles or producers:
            raise click.UsageError("--check changes nothing: leave out --grant.")
        _check(as_json=as_json)
        return
    if as_json:
        raise click.UsageError("--json goes with --check: migrating tells of each step.")
    upgrade()
    if settings().modules:
        for line in modules.make_known():
            click.echo(line)
    for role in roles:
        grants.grant_runtime(engine(), role)
        click.echo(f"role {role}: may run workers and services")
    for role in producers:
        grants.grant_producer(engine(), role)
        click.echo(f"role {role}: may call {_CALLS}")


def _check(*, as_json: bool) -> None:
    state = schema.state(engine())
    if as_json:
        told = {
            "schema": SCHEMA,
            "current": state.current,
            "wanted": state.wanted,
            "is_current": state.current_is_wanted,
        }
        document(told)
        click.get_current_context().exit(0 if state.current_is_wanted else 1)
    if state.current_is_wanted:
        click.echo(f"schema {SCHEMA}: at revision {state.wanted}, which is current")
        return
    if state.current_is_later:
        said = f"schema {SCHEMA} is at revision {state.current}, which is later than {state.wanted} of this release"
        raise DatabaseError(f"{said}: it runs on it, and another release migrates")
    click.echo(
        f"Error: schema {SCHEMA} is at revision {state.current or 'none'}, this release needs {state.wanted}: "
        "run 'tidemill migrate'",
        err=True,
    )
    click.get_current_context().exit(1)


def upgrade() -> None:
    _refuse_old_server()
    progress, log = _Progress(), logging.getLogger("alembic.runtime.migration")
    level = log.level
    log.addHandler(progress)
    log.setLevel(logging.INFO)
    propagate, log.propagate = log.propagate, False
    try:
        before = schema.migrate(engine())
    finally:
        log.removeHandler(progress)
        log.setLevel(level)
        log.propagate = propagate
    if before.current_is_wanted:
        click.echo(f"schema {SCHEMA}: at revision {before.wanted}, nothing to do")
    else:
        click.echo(f"schema {SCHEMA}: from revision {before.current or 'none'} to {before.wanted}")


def _refuse_old_server() -> None:
    with engine().connect() as connection:
        number = int(connection.execute(sa.text("show server_version_num")).scalar_one())
    if number // 10_000 < schema.FLOOR:
        raise DatabaseError(f"this is Postgres {number // 10_000}, and Tidemill needs {schema.FLOOR} or later")
