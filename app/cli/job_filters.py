"""The filters that commands about jobs have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from app.cli.arguments import Past
from app.jobs.model import JobState, Outcome
from app.jobs.search import Filters

Decorator = Callable[[Any], Any]

FILTERS: tuple[Decorator, ...] = (
    click.option("--task", help="Jobs of this task."),
    click.option("--queue", help="Jobs of this queue."),
    click.option("--key", help="Jobs with this key."),
    click.option("--error", metavar="TEXT", help="Jobs whose error has this text in it."),
    click.option("--args", "arguments", metavar="TEXT", help="Jobs whose arguments, as JSON, have this text in them."),
)
QUEUE_ONLY: tuple[Decorator, ...] = (
    click.option("--state", type=click.Choice(JobState, case_sensitive=False), help="Jobs in this state."),
)
LOG_ONLY: tuple[Decorator, ...] = (
    click.option("--job", "job_id", type=click.IntRange(1, 2**63 - 1), help="Executions of this job."),
    click.option("--outcome", type=click.Choice(Outcome, case_sensitive=False), help="Executions that ended so."),
    click.option("--worker", help="Executions on workers whose name begins so."),
    click.option("--since", type=Past(), help="Ended at this time or later: 2h, or 2026-07-01T12:00:00Z."),
    click.option("--until", type=Past(), help="Ended before this time."),
)


def filters_of(given: dict[str, Any]) -> Filters:
    return Filters(**{name: value for name, value in given.items() if value is not None})
