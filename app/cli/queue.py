"""`tidemill queue`: limits of queues, from now on and for the whole cluster."""

from __future__ import annotations

import shlex
from dataclasses import asdict

import click

from app import figures, queues
from app.cli.arguments import NONE, OrNone, RateText, limits_given
from app.cli.output import counted, document, json_option, resting, table
from app.db import transaction


@click.group()
def queue() -> None:
    """Looks at queues, pauses, resumes and limits them."""


@queue.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """Lists queues with their limits.

    \b
    Example:
      tidemill queue list --json
    """
    with transaction() as session:
        found = figures.queues(session)
    if as_json:
        document({"queues": [asdict(each) for each in found]})
        return
    table(
        ("queue", "paused", "rate", "burst", "parallel", "ready", "running", "slots"),
        [
            (
                *(q.name, q.paused or q.rests_why is not None, q.rate, q.burst, q.max_parallel),
                *(counted(q.ready), counted(q.running), q.slots),
            )
            for q in found
        ],
        empty="there are no queues yet",
    )
    for each in found:
        if (rests := resting(each.rests_why, each.rests_until)) is not None:
            click.secho(f"! {each.name}: {rests}", fg="yellow")


@queue.command()
@click.argument("name")
def pause(*, name: str) -> None:
    """Lets nothing more of a queue be started; what runs may end."""
    _tell_unknown(name, known=queues.pause(name))
    click.echo(f"{name} is paused: tidemill queue resume {shlex.quote(name)}")


@queue.command()
@click.argument("name")
def resume(*, name: str) -> None:
    """Lets a paused queue start work again."""
    _tell_unknown(name, known=queues.resume(name))
    click.echo(f"{name} is open")


@queue.command()
@click.argument("name")
@click.option("--rate", type=RateText(), help="Calls a second, minute, hour or day, as in 100/s or 6/min, or 'none'.")
@click.option("--parallel", type=OrNone(1), help="How many may run at once, or 'none'.")
@click.option("--burst", type=click.FloatRange(min=1), help="How many unused calls of the rate may be saved up.")
def limit(*, name: str, rate: str | None, parallel: int | str | None, burst: float | None) -> None:
    """Limits how a queue is worked off by the whole cluster.

    \b
    Examples:
      tidemill queue limit mail --rate 10/s --burst 20
      tidemill queue limit mail --rate none --parallel 4
    """
    changes = limits_given(rate, parallel, burst)
    _tell_unknown(name, known=queues.limit(name, **changes))
    changes = {word: f"{value:g}" if isinstance(value, float) else value for word, value in changes.items()}
    words = ", ".join(
        f"{word.removeprefix('max_')} {NONE if value is None else value}" for word, value in changes.items()
    )
    click.echo(f"{name}: {words}")


def _tell_unknown(name: str, *, known: bool) -> None:
    if not known:
        click.echo(f"Note: no task, job or worker has a queue {name!r} yet.", err=True)
