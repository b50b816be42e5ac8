"""`tidemill recover`: what recovery has put right, a sweep by hand, a check of what must hold, and operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from typing import Any

import click

from app.cli.arguments import Past, limit_option
from app.cli.output import document, json_option, table, told_of_more
from app.cli.recover_check import check
from app.cli.recover_known import known
from app.cli.recover_operation import operation
from app.db import transaction
from recovery import decisions, graphs, jobs, processes, record, runs, visits

#: By domain, in the order in which they are made: decisions come before the graphs that wait for them.
SWEEPS: dict[str, dict[str, Callable[[], Any]]] = {
    record.PROCESS: {
        "decisions": decisions.run_once,
        "processes": processes.run_once,
        "graphs": graphs.run_once,
    },
    record.VISIT: {"visits": visits.run_once},
    record.RUN: {"runs": runs.run_once},
    record.JOB: {"jobs": jobs.run_once},
}
#: A sweep that finds as much as this has a storm before it: the services go on with it.
PASSES_MOST = 1000


@click.group()
def recover() -> None:
    """What was lost and put right, and many things done at once."""


recover.add_command(check)
recover.add_command(operation)
recover.add_command(known)


@recover.command()
@click.option("--domain", "domains", type=click.Choice(record.DOMAINS), multiple=True, help="Only this; repeatable.")
@json_option
def sweep(*, domains: tuple[str, ...], as_json: bool) -> None:
    """Looks for what is lost, now, and puts it right.

    It is what the services do all the time: needed where none of them runs. Nothing is done about work that only waits,
    and nothing at all within a lease of the start of the database.

    \b
    Examples:
      tidemill recover sweep
      tidemill recover sweep --domain process --json
    """
    found = {name: _until_done(run) for domain in domains or record.DOMAINS for name, run in SWEEPS[domain].items()}
    if as_json:
        document(found)
        return
    for name, counts in found.items():
        click.echo(f"{name:10} {_words(counts)}")


def _until_done(run: Callable[[], Any]) -> dict[str, Any]:
    counts, why = Counter[str](), Counter[str]()
    for _ in range(PASSES_MOST):
        report = run()
        for each in fields(report):
            value = getattr(report, each.name)
            if each.name == "why":
                why.update(value)
            elif each.name != "more":
                counts[each.name] += value
        if not report.more:
            break
    return {**counts, **({"why": dict(why)} if why else {})}


def _words(counts: dict[str, Any]) -> str:
    words = [f"{count} {name}" for name, count in counts.items() if count and name != "why"]
    reasons = [f"{name} ×{count}" for name, count in sorted(counts.get("why", {}).items())]
    told = ", ".join(words) or "nothing to do"
    return f"{told} ({', '.join(reasons)})" if reasons else told


@recover.command()
@click.option("--since", type=Past(), help="Made at this time or later, such as 2h.")
@click.option("--subject", metavar="TEXT", help="Of this process (17), task (17/3), job …")
@click.option("--operation", "operation_id", type=click.IntRange(1, 2**63 - 1), help="On the wish of this operation.")
@limit_option(50)
@json_option
def repairs(
    *, since: datetime | None, subject: str | None, operation_id: int | None, limit: int, as_json: bool
) -> None:
    """Lists what was put right, the latest first.

    \b
    Examples:
      tidemill recover repairs --since 1h
      tidemill recover repairs --subject 17 --json
    """
    with transaction() as session:
        rows = record.listed(session, since=since, subject=subject, operation_id=operation_id, limit=limit)
    if as_json:
        document({"repairs": [dict(row._mapping) for row in rows]})
        return
    table(
        ("at", "what", "finding", "action", "by"),
        [
            (
                row.at,
                f"{row.domain} {row.subject}",
                row.finding,
                row.action,
                "itself" if row.operation_id is None else f"operation {row.operation_id}",
            )
            for row in rows
        ],
        empty="nothing was repaired",
    )
    told_of_more(rows, limit)
