"""`tidemill reactive run | rewind | forget | cancel | pause | resume | release | remove`."""

from __future__ import annotations

import shlex
from datetime import datetime

import click
from sqlalchemy.orm import Session

from app import workers
from app.cli.output import agree, table, yes_option
from app.cli.reactive_arguments import At, named, task_argument
from app.cli.reactive_words import run as run_words
from app.db import transaction
from app.errors import BadRequest
from app.settings import settings
from triggers import listing, lookup, operate, preview
from triggers.definition import queue_of
from triggers.model import RunId
from triggers.operate import Seen
from triggers.preview import Preview
from triggers.why import Why, registered
from triggers.why import why as reason_of


def _full_name(words: str) -> str:
    with transaction() as session:
        return lookup.task(session, words)


@click.command()
@task_argument
@click.option("--record", is_flag=True, help="What it was given counts as seen when it has ended well.")
@click.option("--from", "since", type=At(), help="Begin of a window to work on, instead of what is new.")
@click.option("--to", "until", type=At(), help="End of that window.")
def run(*, task: str, record: bool, since: datetime | None, until: datetime | None) -> None:
    """Runs a task once, whatever its trigger says.

    Its trigger goes on from where it was, unless --record is given. --from and --to make old data anew.

    \b
    Examples:
      tidemill reactive run build_orders_mart
      tidemill reactive run build_orders_mart --from 2026-06-01T00:00:00Z --to 2026-07-01T00:00:00Z
    """
    window = _window(since, until)
    name = _full_name(task)
    run_id = operate.start(name, record=record, window=window)
    click.echo(f"run {run_id} of {name} waits for a worker: tidemill reactive why {shlex.quote(name)}")
    with transaction() as session:
        _warn(session, reason_of(session, name))
        if record and window is not None:
            _say_what_stays(preview.rewind(session, name, window[1]).seen)


def _window(since: datetime | None, until: datetime | None) -> tuple[datetime, datetime] | None:
    if since is None and until is None:
        return None
    if since is None or until is None:
        raise click.UsageError("A window has two ends: give both --from and --to.")
    if since >= until:
        raise click.UsageError(f"The window from {named(since)} to {named(until)} is empty: --to must be later.")
    return since, until


def _warn(session: Session, why: Why) -> None:
    queue = str(why.run.get("queue", queue_of("")))
    if queue not in workers.slots(session):
        click.echo(
            f"Note: no live worker takes {queue}; start one: celery -A app worker -Q {shlex.quote(queue)}", err=True
        )
    if (pool := listing.pool(session, queue.partition(".")[2])).paused:
        click.echo(f"Note: pool {pool.name} is paused: tidemill queue resume {shlex.quote(queue)}", err=True)


def _say_what_stays(seen: tuple[Seen, ...]) -> None:
    for each in seen:
        click.echo(
            f"Note: {each.entity}.{each.parameter} was seen up to {named(each.before)}, and stays so: --record takes "
            "nothing back; to process again from a time on: tidemill reactive rewind",
            err=True,
        )


@click.command()
@task_argument
@click.option("--to", type=At(), required=True, help="What was seen later is new again: a time, or 2h ago.")
@yes_option
def rewind(*, task: str, to: datetime, yes: bool) -> None:
    """Takes back what a task has seen after a time.

    Shows what that is and whether the task would start at once, and asks. A run that works just now may end, but is not
    remembered.

    \b
    Example:
      tidemill reactive rewind build_orders_mart --to 2026-06-30T00:00:00Z
    """
    name = _full_name(task)
    with transaction() as session:
        found = preview.rewind(session, name, to)
    if not found.seen and found.then.state != "running":
        click.echo(f"{name} has seen nothing later than {named(to)}: nothing was changed")
        return
    _show(found)
    agree(f"Rewind {name} to {named(to)}?", yes=yes)
    _tell(name, operate.rewind(name, to))


@click.command()
@task_argument
@yes_option
def forget(*, task: str, yes: bool) -> None:
    """Lets a task begin as if it had never run.

    Shows what it has seen and whether the task would start at once, and asks. Its runs stay in the list.

    \b
    Example:
      tidemill reactive forget build_orders_mart
    """
    name = _full_name(task)
    with transaction() as session:
        found = preview.forget(session, name)
    if not found.seen and found.then.state != "running":
        click.echo(f"{name} has seen nothing: nothing was changed")
        return
    _show(found)
    agree(f"Forget what {name} has seen?", yes=yes)
    _tell(name, operate.forget(name))


def _show(found: Preview) -> None:
    rows = [
        (f"{s.entity}.{s.parameter}", named(s.before), "never" if s.after is None else named(s.after))
        for s in found.seen
    ]
    table(("parameter", "last seen", "would be"), rows, empty="nothing was seen; the run that works is not remembered")
    click.echo(found.outlook)


def _tell(name: str, seen: list[Seen]) -> None:
    for each in seen:
        now = "is as never seen" if each.after is None else f"is seen up to {named(each.after)}"
        click.echo(f"{each.entity}.{each.parameter} {now} (it was {named(each.before)})")
    with transaction() as session:
        found = reason_of(session, name)
    click.echo(f"{name} is {found.state} now")


@click.command()
@task_argument
@click.option("--reason", default="by an operator", show_default=True, help="Kept with the run and in the audit.")
@yes_option
def cancel(*, task: str, reason: str, yes: bool) -> None:
    """Ends the run of a task that waits or works.

    Shows it and asks. What it has seen stays as it was; the task does not start again until its input moves.

    \b
    Example:
      tidemill reactive cancel build_orders_mart --reason "the load of July 1st is wrong"
    """
    name = _full_name(task)
    with transaction() as session:
        found = reason_of(session, name)
    if found.state not in ("waiting", "running"):
        raise BadRequest(f"{name} has no run that waits or works: there is nothing to cancel")
    click.echo(f"run {run_words(found.run)}")
    agree(f"Cancel run {found.run['id']} of {name}?", yes=yes)
    run_id = operate.cancel(name, reason=reason, run=RunId(found.run["id"]))
    click.echo(f"run {run_id} of {name} is cancelled")
    if found.run["kind"] == "regular":
        click.echo(f"it starts again when its input moves, or after: tidemill reactive release {shlex.quote(name)}")


@click.command()
@task_argument
def pause(*, task: str) -> None:
    """Lets a task start no more.

    A run that waits is taken back, one that works ends as usual.
    """
    name = _full_name(task)
    new = operate.pause(name)
    click.echo(f"{name} {'is' if new else 'was already'} paused: tidemill reactive resume {shlex.quote(name)}")


@click.command()
@task_argument
def resume(*, task: str) -> None:
    """Lets a paused task start again."""
    name = _full_name(task)
    if operate.resume(name):
        _now(name, "is not paused any more")
    else:
        click.echo(f"{name} was not paused")


@click.command()
@task_argument
def release(*, task: str) -> None:
    """Lets a quarantined task start again."""
    name = _full_name(task)
    if operate.release(name):
        _now(name, "is released")
    else:
        click.echo(f"{name} was not quarantined")


@click.command()
@task_argument
@yes_option
def remove(*, task: str, yes: bool) -> None:
    """Removes a task whose module is gone.

    It starts no more, and a run that waits is cancelled; what it has seen is kept. A service whose modules still
    declare it brings it back when it starts.
    """
    name = _full_name(task)
    with transaction() as session:
        module = registered(session, name).module
        state = reason_of(session, name).state
    if module in settings().modules:
        raise BadRequest(
            f"module {module} is one of TIDEMILL_MODULES: take {name} out of it, and 'tidemill migrate' removes it"
        )
    if state == "removed":
        click.echo(f"{name} was already removed")
        return
    click.echo(f"{name} of module {module} is {state}")
    agree(f"Remove {name}?", yes=yes)
    operate.remove(name)
    click.echo(f"{name} is removed; a service that still declares it brings it back when it starts")


def _now(name: str, done: str) -> None:
    with transaction() as session:
        state = reason_of(session, name).state
    click.echo(f"{name} {done}: it is {state} now")


COMMANDS = (run, rewind, forget, cancel, pause, resume, release, remove)
