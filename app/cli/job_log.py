"""`tidemill job log` and `job rerun`: past executions, and putting them in again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.cli.arguments import limit_option, options
from app.cli.job_filters import FILTERS, LOG_ONLY, filters_of
from app.cli.output import agree, document, json_option, table, told_of_more, yes_option
from app.db import transaction
from app.errors import NotFound
from app.jobs import operate
from app.jobs.model import JOB_LOG, JobLog
from app.jobs.search import MOST, Filters, last_of_each, search_log

SAMPLE = 5


def entry_as_data(entry: JobLog) -> dict[str, Any]:
    values = {column.name: getattr(entry, column.name) for column in JOB_LOG.columns}
    return values | {"priority": -values.pop("rank")}


@click.command()
@options(*FILTERS, *LOG_ONLY, limit_option(50), json_option)
def log(*, limit: int, as_json: bool, **filters: Any) -> None:
    """Lists past executions, the latest first.

    \b
    Examples:
      tidemill job log --outcome failed --since 2h
      tidemill job log --job 42 --json
    """
    with transaction() as session:
        found = search_log(session, filters_of(filters), limit)
    if as_json:
        document({"log": [entry_as_data(entry) for entry in found]})
        return
    show_entries(found, empty="no such execution is in the log")
    told_of_more(found, limit)


def show_entries(found: Sequence[JobLog], *, empty: str) -> None:
    table(
        ("log id", "job", "outcome", "task", "ended", "took", "try", "error"),
        [
            (
                entry.id,
                entry.job_id,
                entry.outcome,
                entry.task,
                entry.ended_at,
                None if entry.started_at is None else entry.ended_at - entry.started_at,
                entry.attempt,
                entry.error,
            )
            for entry in found
        ],
        empty=empty,
    )


@click.command()
@options(*FILTERS, *LOG_ONLY)
@click.option(
    "--log-id", "log_ids", type=click.IntRange(1, 2**63 - 1), multiple=True, help="This execution; repeatable."
)
@limit_option(1000)
@yes_option
def rerun(*, log_ids: tuple[int, ...], limit: int, yes: bool, **given: Any) -> None:
    """Puts past jobs in again, as new ones.

    Each once, however many of its executions match.

    \b
    Examples:
      tidemill job rerun --outcome failed --task shop.charge --since 1d
      tidemill job rerun --log-id 1017
    """
    filters = filters_of(given)
    if bool(log_ids) == (filters != Filters()):
        raise click.UsageError("Say which: filters as of 'job log', or --log-id; not both.")
    with transaction() as session:
        chosen = _named(session, log_ids) if log_ids else last_of_each(session, filters)
        sample = session.scalars(
            sa.select(JobLog).where(JobLog.id.in_(chosen[:SAMPLE])).order_by(JobLog.id.desc())
        ).all()
    if not chosen:
        click.echo("Nothing matches.")
        return
    taken = chosen[:limit]
    if len(chosen) > 1:
        show_entries(sample, empty="")
        if len(chosen) > len(sample):
            click.echo(f"… and {len(chosen) - len(sample)} more" + ("" if len(chosen) < MOST else " at least"))
        if len(chosen) > limit:
            click.echo(f"Only the latest {limit} are taken; --limit takes more.")
        agree(f"Put {len(taken)} jobs in again?", yes=yes)
    new = operate.rerun(taken)
    click.echo(f"{_jobs(len(new))} put in again: {_ids(new)}")


def _named(session: Session, log_ids: Sequence[int]) -> list[int]:
    found = set(session.scalars(sa.select(JobLog.id).where(JobLog.id.in_(log_ids))))
    if missing := [each for each in log_ids if each not in found]:
        raise NotFound(f"the log has no execution {', '.join(map(str, missing))}")
    return sorted(found, reverse=True)


def _jobs(count: int) -> str:
    return "1 job was" if count == 1 else f"{count} jobs were"


def _ids(ids: Sequence[int], most: int = 10) -> str:
    return ", ".join(map(str, ids[:most])) + (" …" if len(ids) > most else "")
