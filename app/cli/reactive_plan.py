"""`tidemill reactive plan`: what a deploy of this code would change and start, before it is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import click

from app.cli.modules import application
from app.cli.output import document, heading, json_option, table
from triggers import foresee
from triggers.foresee import Plan
from triggers.sync import Synced


@click.command()
@json_option
def plan(*, as_json: bool) -> None:
    """Says what a deploy of this code would start.

    Compares the tasks of TIDEMILL_MODULES with those that are registered: which are new, changed or removed, which of
    them would start at once, and what is wrong with their triggers. Nothing is changed.

    \b
    Examples:
      TIDEMILL_MODULES=shop.marts tidemill reactive plan
      tidemill reactive plan --json | jq '.starting'
    """
    application()
    found = foresee.plan()
    if as_json:
        document(_as_data(found))
    else:
        _show(found)


def _as_data(found: Plan) -> dict[str, object]:
    told = found.synced
    return {
        "tasks": told.tasks,
        "new": told.new,
        "changed": told.changed,
        "differences": found.what,
        "removed": told.removed,
        "starting": [each.task for each in found.starts if each.held is None],
        "held": [asdict(each) for each in found.starts if each.held is not None],
        "findings": [asdict(each) for each in told.findings],
        "unchecked": told.unchecked,
    }


def _show(found: Plan) -> None:
    told = found.synced
    if not told.tasks:
        click.echo("No module of TIDEMILL_MODULES declares a reactive task.")
    else:
        click.echo(f"{told.tasks} reactive tasks are declared")
    table(("task", "change", "what", "starts"), _rows(found), empty="nothing would change")
    starting = sum(each.held is None for each in found.starts)
    click.echo(f"{starting} would start at once. Nothing was changed.")
    if told.findings or told.unchecked:
        heading("Findings")
    for each in told.findings:
        click.echo(f"{each.kind}: {each.sentence}")
    if told.unchecked is not None:
        click.echo(f"not checked: {told.unchecked}")


def _rows(found: Plan) -> Iterator[tuple[str | None, ...]]:
    starts = {each.task: f"no: {each.held}" if each.held else "at once" for each in found.starts}
    for change, names in _changes(found.synced):
        for name in names:
            yield name, change, ", ".join(found.what.get(name, ())) or None, starts.get(name, "no")


def _changes(told: Synced) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "new", told.new
    yield "changed", told.changed
    yield "removed", told.removed
