"""`tidemill status`: queues, workers and the last minutes at a glance."""

from __future__ import annotations

from dataclasses import asdict

import click

from app.cli import figures
from app.cli.figures import Executions, QueueFigures, WorkerFigures
from app.cli.output import document, heading, json_option, span, table
from app.db import transaction


@click.command()
@json_option
def status(*, as_json: bool) -> None:
    """Shows queues, workers and the last minutes.

    \b
    Examples:
      tidemill status
      tidemill status --json | jq '.queues[] | select(.ready > 100)'
    """
    with transaction() as session:
        queues = figures.queues(session)
        workers = figures.live_and_gone(session)
        recent = figures.executions(session)
    if as_json:
        document(
            {
                "queues": [asdict(each) | {"stands_still": each.stands_still} for each in queues],
                "workers": [asdict(each) for each in workers],
                "executions": asdict(recent)
                | {"done_per_minute": recent.done_per_minute, "failed_per_minute": recent.failed_per_minute},
            }
        )
    else:
        _show(queues, workers, recent)


def _show(queues: list[QueueFigures], workers: list[WorkerFigures], recent: Executions) -> None:
    click.secho("Queues", bold=True)
    headers = ("queue", "ready", "later", "running", "parked", "oldest", "slots", "limits")
    table(
        headers,
        [(q.name, q.ready, q.later, q.running, q.parked, q.oldest, q.slots, _limits(q)) for q in queues],
        empty="no job waits, and no worker lives",
    )
    for each in queues:
        if each.stands_still:
            click.secho(f"! {each.name}: {each.ready} jobs are ready and no live worker takes them", fg="red")
    heading("Workers")
    table(
        ("worker", "slots", "last beat", "queues"),
        [(w.name, w.slots, _beat(w), ", ".join(w.queues)) for w in workers],
        empty="none has reported",
    )
    heading(f"Last {recent.minutes:g} minutes")
    click.echo(
        f"{recent.done} done ({recent.done_per_minute:g}/min), {recent.failed} failed "
        f"({recent.failed_per_minute:g}/min), {recent.retried} retried, {recent.lost} lost"
    )


def _limits(queue: QueueFigures) -> str | None:
    words = ["PAUSED"] if queue.paused else []
    if queue.rate is not None:
        words.append(queue.rate + (f" burst {queue.burst:g}" if queue.burst and queue.burst > 1 else ""))
    if queue.max_parallel is not None:
        words.append(f"{queue.max_parallel} at once")
    return ", ".join(words) or None


def _beat(worker: WorkerFigures) -> str:
    return f"{span(worker.last_beat)} ago" + ("" if worker.alive else " GONE")
