"""`tidemill job`: what is in the queue, what ran, and all that may be done about it."""

from __future__ import annotations

from typing import Any

import click

from app.cli import job_change
from app.cli.arguments import limit_option, options
from app.cli.job_filters import FILTERS, QUEUE_ONLY, filters_of
from app.cli.job_log import entry_as_data, log
from app.cli.output import document, heading, json_option, table, told_of_more, when
from app.cli.periodic import periodic
from app.db import transaction
from app.errors import NotFound
from app.jobs.model import JOB, Job, JobLog
from app.jobs.search import Filters, search_jobs, search_log


@click.group()
def job() -> None:
    """Looks at jobs and changes them."""


for command in (log, periodic, *job_change.COMMANDS):
    job.add_command(command)


def job_as_data(job: Job) -> dict[str, Any]:
    values = {column.name: getattr(job, column.name) for column in JOB.columns}
    return values | {"priority": -values.pop("rank")}


@job.command("list")
@options(*FILTERS, *QUEUE_ONLY, limit_option(50), json_option)
def list_(*, limit: int, as_json: bool, **filters: Any) -> None:
    """Lists what waits, runs or is parked.

    \b
    Examples:
      tidemill job list --state parked
      tidemill job list --task shop.send_mail --error timeout --json
    """
    with transaction() as session:
        jobs = search_jobs(session, filters_of(filters), limit)
    if as_json:
        document({"jobs": [job_as_data(each) for each in jobs]})
        return
    table(
        ("id", "state", "queue", "task", "due", "tries", "error"),
        [(j.id, j.state, j.queue, j.task, _due(j), f"{j.attempts}/{j.max_attempts}", j.error) for j in jobs],
        empty="no such job is in the queue",
    )
    told_of_more(jobs, limit)


def _due(job: Job) -> str | None:
    moments = [moment for moment in (job.due_at, job.not_before) if moment is not None]
    return when(max(moments)) if moments else None


@job.command()
@click.argument("job_id", type=click.IntRange(1, 2**63 - 1))
@json_option
def show(*, job_id: int, as_json: bool) -> None:
    """Shows one job and its executions.

    \b
    Example:
      tidemill job show 42
    """
    with transaction() as session:
        found = session.get(Job, job_id)
        entries = search_log(session, Filters(job_id=job_id), 100)
        if found is None and not entries:
            raise NotFound(f"no job {job_id}: neither in the queue nor in the log")
    if as_json:
        document(
            {"job": None if found is None else job_as_data(found), "log": [entry_as_data(each) for each in entries]}
        )
        return
    if found is not None:
        _show_fields(job_as_data(found))
    else:
        click.echo(f"job {job_id} is not in the queue any more")
    heading("Executions, the latest first")
    table(
        ("ended", "outcome", "try", "worker", "error"),
        [(entry.ended_at, entry.outcome, entry.attempt, entry.worker, entry.error) for entry in entries],
        empty="none yet",
    )
    _show_traceback(entries)


def _show_fields(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value is not None:
            text = when(value) if hasattr(value, "astimezone") else str(value)
            click.echo(f"{name.replace('_', ' '):16} {text}")


def _show_traceback(entries: list[JobLog]) -> None:
    for entry in entries:
        if entry.traceback:
            heading(f"Traceback of try {entry.attempt}")
            click.echo(entry.traceback.rstrip())
            return
