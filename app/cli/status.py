"""`tidemill status`: queues, workers and the last minutes at a glance."""

from __future__ import annotations

from dataclasses import asdict

import click

from app.cli import figures
from app.cli.figures import Executions, QueueFigures, ReactiveFigures, WorkerFigures
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
        reactive = figures.reactive(session)
    if as_json:
        document(
            {
                "queues": [asdict(each) | {"stands_still": each.stands_still} for each in queues],
                "workers": [asdict(each) for each in workers],
                "executions": asdict(recent)
                | {"done_per_minute": recent.done_per_minute, "failed_per_minute": recent.failed_per_minute},
                "reactive": asdict(reactive),
            }
        )
    else:
        _show(queues, workers, recent)
        _show_reactive(reactive, recent.minutes)


def _show(queues: list[QueueFigures], workers: list[WorkerFigures], recent: Executions) -> None:
    click.secho("Queues", bold=True)
    headers = ("queue", "ready", "later", "running", "parked", "oldest", "slots", "limits")
    table(
        headers,
        [(q.name, q.ready, q.later, q.running, q.parked, q.oldest, q.slots, _limits(q)) for q in queues],
        empty="nothing waits, and no worker lives",
    )
    for each in queues:
        if each.stands_still:
            click.secho(f"! {each.name}: {each.ready} {each.holds} are ready and no live worker takes them", fg="red")
    heading("Workers")
    table(
        ("worker", "slots", "last beat", "queues"),
        [(w.name, w.slots, _beat(w), ", ".join(w.queues)) for w in workers],
        empty="none has reported",
    )
    heading(f"Jobs of the last {recent.minutes:g} minutes")
    click.echo(
        f"{recent.done} done ({recent.done_per_minute:g}/min), {recent.failed} failed "
        f"({recent.failed_per_minute:g}/min), {recent.retried} retried, {recent.lost} lost"
    )


def _show_reactive(reactive: ReactiveFigures, minutes: float) -> None:
    if not reactive.tasks and not reactive.waiting and not reactive.running:
        return
    heading("Reactive tasks")
    words = [f"{reactive.tasks} declared", f"{reactive.running} running", f"{reactive.waiting} waiting"]
    words += [f"{reactive.paused} paused"] if reactive.paused else []
    click.echo(", ".join(words) + f"; {reactive.done} runs done and {reactive.failed} failed in {minutes:g} minutes")
    if reactive.quarantined:
        told = f"! {reactive.quarantined} quarantined: tidemill reactive list --state quarantined"
        click.secho(told, fg="red")


def _limits(queue: QueueFigures) -> str | None:
    words = ["PAUSED"] if queue.paused else []
    if queue.rate is not None:
        words.append(queue.rate + (f" burst {queue.burst:g}" if queue.burst and queue.burst > 1 else ""))
    if queue.max_parallel is not None:
        words.append(f"{queue.max_parallel} at once")
    return ", ".join(words) or None


def _beat(worker: WorkerFigures) -> str:
    return f"{span(worker.last_beat)} ago" + ("" if worker.alive else " GONE")
