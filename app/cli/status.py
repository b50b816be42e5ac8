"""`tidemill status`: queues, workers and the last minutes at a glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from app import glance
from app.cli.output import counted, document, heading, json_option, resting, span, table
from app.db import transaction
from app.figures import Executions, ProcessFigures, QueueFigures, ReactiveFigures, StageFigures, WorkerFigures
from app.glance import REPAIRS_OF
from app.health.events import failing, told
from app.outbox.listing import Lag
from processes.wording import clean
from recovery.operations import Progress


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
        found = glance.look(session)
    if as_json:
        document(found.data())
        return
    _show(found.queues, found.workers, found.executions)
    _show_reactive(found.reactive, found.executions.minutes)
    _show_stages(found.stages)
    _show_processes(found.processes, found.executions.minutes)
    _show_events(found.events)
    _show_recovery(found.repairs, found.operations)


def _show(queues: Sequence[QueueFigures], workers: Sequence[WorkerFigures], recent: Executions) -> None:
    click.secho("Queues", bold=True)
    headers = ("queue", "ready", "later", "running", "parked", "oldest", "slots", "limits")
    table(
        headers,
        [
            (
                *(q.name, counted(q.ready), counted(q.later), counted(q.running), counted(q.parked)),
                *(q.oldest, q.slots, _limits(q)),
            )
            for q in queues
        ],
        empty="nothing waits, and no worker lives",
    )
    for each in queues:
        if (rests := resting(each.rests_why, each.rests_until)) is not None:
            click.secho(f"! {each.name}: {rests}", fg="yellow")
        if each.stands_still:
            click.secho(
                f"! {each.name}: {counted(each.ready)} {each.holds} are ready and no live worker takes them", fg="red"
            )
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
    if reactive.missed:
        told = f"! {reactive.missed} windows missed in {minutes:g} minutes: tidemill reactive list --missed"
        click.secho(told, fg="yellow")


def _show_stages(stages: StageFigures) -> None:
    if not stages.stages and not stages.ready and not stages.parked:
        return
    heading("Stages")
    words = [f"{stages.stages} declared", f"{stages.running} visits running", f"{stages.ready} ready"]
    words += [f"{stages.later} later", *([f"{stages.low} in low lanes"] if stages.low else [])]
    click.echo(", ".join(words) + (f"; {stages.paused} stages paused" if stages.paused else ""))
    if stages.late:
        oldest = "" if stages.oldest is None else f", the first for {span(stages.oldest)}"
        told = f"! {stages.late} visits are late, ready for over a minute{oldest}: tidemill stage list"
        click.secho(told, fg="yellow")
    if stages.parked:
        click.secho(f"! {stages.parked} visits are parked: tidemill stage parked", fg="red")
    if stages.failing:
        click.secho(f"! should_process failed in {stages.failing} stages: tidemill stage list", fg="yellow")


def _show_processes(processes: ProcessFigures, minutes: float) -> None:
    if not processes.deciders and not processes.registered and not processes.active and not processes.broken:
        return
    heading("Processes")
    words = [f"{counted(processes.active)} active", f"{counted(processes.registered)} registered"]
    ended = f"{processes.finished} finished and {processes.aborted} aborted in {minutes:g} minutes"
    tasks = f"{counted(processes.in_work)} in work, {counted(processes.ready)} ready, {counted(processes.later)} later"
    click.echo(f"{', '.join(words)}; {ended}; tasks: {tasks}")
    if processes.broken or processes.broken_tasks:
        told = f"{counted(processes.broken)} are broken, with {counted(processes.broken_tasks)} broken tasks"
        click.secho(f"! {told}: tidemill process search --state broken", fg="red")
    if processes.never_begun:
        oldest = "" if processes.oldest is None else f", the first for {span(processes.oldest)}"
        told = f"! {counted(processes.never_begun)} registered and never begun{oldest}"
        click.secho(f"{told}: tidemill process search --state registered", fg="yellow")


def _show_events(lag: Lag) -> None:
    if not lag.waiting and not lag.published and not lag.subscriptions:
        return
    heading("Events")
    click.echo(f"{told(lag)}; {lag.published} published so far")
    if lag.error is not None:
        click.secho(f"! {lag.error}{failing(lag)}", fg="red")


def _show_recovery(repairs: Mapping[str, int], live: Sequence[Progress]) -> None:
    if repairs or live:
        heading("Recovery")
    for each in live:
        words = f"operation {each.id} ({each.kind}) is {each.state}: {each.ended} of {each.total}, {each.failed} failed"
        if each.why is None:
            click.echo(words)
        else:
            why = f"{words}; it paused itself: {clean(each.why)}"
            click.secho(f"! {why}: tidemill recover operation show {each.id}", fg="red")
    if repairs:
        told = ", ".join(f"{name} {counted(count)}" for name, count in repairs.items())
        click.echo(f"put right in the last {span(REPAIRS_OF)}: {told}: tidemill recover repairs")


def _limits(queue: QueueFigures) -> str | None:
    words = ["PAUSED"] if queue.paused or queue.rests_why is not None else []
    if queue.rate is not None:
        words.append(queue.rate + (f" burst {queue.burst:g}" if queue.burst and queue.burst > 1 else ""))
    if queue.max_parallel is not None:
        words.append(f"{queue.max_parallel} at once" + (f", {queue.kept} kept" if queue.kept else ""))
    return ", ".join(words) or None


def _beat(worker: WorkerFigures) -> str:
    return f"{span(worker.last_beat)} ago" + ("" if worker.alive else " GONE")
