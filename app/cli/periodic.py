"""`tidemill job periodic`: timetables."""

from __future__ import annotations

from typing import Any

import click
import sqlalchemy as sa

from app.cli.output import agree, document, json_option, span, table, yes_option
from app.db import transaction
from app.jobs import operate
from app.jobs.model import PeriodicJob


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def periodic(ctx: click.Context, *, as_json: bool) -> None:
    """Lists and changes periodic jobs.

    \b
    Examples:
      tidemill job periodic
      tidemill job periodic pause shop.report
    """
    if ctx.invoked_subcommand is None:
        _list(as_json=as_json)


@periodic.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """Lists periodic jobs with their next time."""
    _list(as_json=as_json)


def _list(*, as_json: bool) -> None:
    with transaction() as session:
        rows = session.scalars(sa.select(PeriodicJob).order_by(PeriodicJob.name)).all()
    if as_json:
        document({"periodic": [_as_data(row) for row in rows]})
        return
    table(
        ("name", "when", "queue", "next", "last", "task"),
        [
            (row.name, _when(row), row.queue, "PAUSED" if row.paused else row.next_at, row.fired_at, row.task)
            for row in rows
        ],
        empty="there are no periodic jobs: a module declares them with periodic(…)",
    )


def _as_data(row: PeriodicJob) -> dict[str, Any]:
    values = {column.name: getattr(row, column.name) for column in PeriodicJob.__table__.columns}
    return values | {"priority": -values.pop("rank")}


def _when(row: PeriodicJob) -> str:
    return f"every {span(row.every)}" if row.every is not None else f"{row.cron} {row.tz}"


@periodic.command()
@click.argument("name")
def pause(*, name: str) -> None:
    """Stops a periodic job from firing until it is resumed."""
    operate.pause_periodic(name)
    click.echo(f"{name} is paused")


@periodic.command()
@click.argument("name")
def resume(*, name: str) -> None:
    """Lets a paused periodic job fire again."""
    operate.resume_periodic(name)
    click.echo(f"{name} fires again")


@periodic.command()
@click.argument("name")
@yes_option
def remove(*, name: str, yes: bool) -> None:
    """Removes a periodic job.

    A service whose modules still declare it brings it back when it starts."""
    agree(f"Remove the periodic job {name}?", yes=yes)
    operate.remove_periodic(name)
    click.echo(f"{name} is removed")
