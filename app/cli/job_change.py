"""`tidemill job retry | cancel | snooze | priority`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import click

from app.cli.arguments import Moment
from app.cli.job_log import rerun
from app.cli.output import agree, table, when, yes_option
from app.db import transaction
from app.errors import BadRequest
from app.jobs import operate
from app.jobs.model import Job

SAMPLE = 5
_ID = click.IntRange(1, 2**63 - 1)
_PRIORITY = click.IntRange(-32767, 32767)


def _each(job_ids: Sequence[int], change: Callable[[int], object], done: str) -> None:
    """One by one: what cannot be changed does not hold up the others."""
    refused = 0
    for job_id in dict.fromkeys(job_ids):
        try:
            change(job_id)
        except BadRequest as error:
            refused += 1
            click.echo(f"Error: {error}", err=True)
        else:
            click.echo(f"job {job_id} {done}")
    if refused:
        click.get_current_context().exit(1)


@click.command()
@click.argument("job_ids", metavar="ID…", type=_ID, nargs=-1, required=True)
def retry(*, job_ids: tuple[int, ...]) -> None:
    """Tries jobs again now.

    Parked ones, or such as wait in backoff; they have all their attempts anew.

    \b
    Example:
      tidemill job retry 42 43
    """
    _each(job_ids, operate.retry, "is tried again")


@click.command()
@click.argument("job_ids", metavar="ID…", type=_ID, nargs=-1, required=True)
@yes_option
def cancel(*, job_ids: tuple[int, ...], yes: bool) -> None:
    """Takes jobs out of the queue.

    Waiting or parked ones; it asks when there is more than one.

    \b
    Example:
      tidemill job cancel 42
    """
    if len(set(job_ids)) > 1 and not yes:
        with transaction() as session:
            found = session.query(Job).where(Job.id.in_(job_ids)).order_by(Job.id).limit(SAMPLE).all()
        table(("id", "state", "queue", "task"), [(j.id, j.state, j.queue, j.task) for j in found], empty="")
        agree(f"Cancel {len(set(job_ids))} jobs?", yes=yes)
    _each(job_ids, operate.cancel, "is cancelled")


@click.command()
@click.argument("job_id", metavar="ID", type=_ID)
@click.option("--until", type=Moment(), required=True, help="2026-07-01T12:00:00Z, or a span from now such as 2h.")
def snooze(*, job_id: int, until: datetime | timedelta) -> None:
    """Lets a waiting job start at another time.

    \b
    Examples:
      tidemill job snooze 42 --until 2h
      tidemill job snooze 42 --until 2026-07-01T12:00:00+03:00
    """
    operate.snooze(job_id, until)
    with transaction() as session:
        found = session.get(Job, job_id)
    due = None if found is None else found.due_at
    click.echo(f"job {job_id} starts " + ("as asked" if due is None else f"at {when(due)}"))


# -5 is a priority, not an option.
@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("job_id", metavar="ID", type=_ID)
@click.argument("number", metavar="N", type=_PRIORITY)
def priority(*, job_id: int, number: int) -> None:
    """Gives a waiting job another priority.

    Larger runs first, 0 is usual.

    \b
    Example:
      tidemill job priority 42 10
    """
    operate.prioritize(job_id, number)
    click.echo(f"job {job_id} has priority {number}")


COMMANDS = (retry, rerun, cancel, snooze, priority)
