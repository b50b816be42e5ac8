"""`tidemill doctor`: everything that must be right, checked."""

from __future__ import annotations

from dataclasses import asdict

import click

from app.cli.output import document, json_option
from app.health.examining import examine
from app.health.finding import Finding, Level

COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@click.command()
@json_option
def doctor(*, as_json: bool) -> None:
    """Checks everything, and says what to do.

    Settings, database, broker, workers, data: exit 1 if anything fails.

    \b
    Examples:
      tidemill doctor
      tidemill doctor --json | jq '.findings[] | select(.level != "ok")'
    """
    found = []
    for finding in examine():
        found.append(finding)
        if not as_json:
            _show(finding)
    failed = any(finding.level is Level.FAIL for finding in found)
    if as_json:
        document({"healthy": not failed, "findings": [asdict(each) for each in found]})
    if failed:
        click.get_current_context().exit(1)


def _show(finding: Finding) -> None:
    mark = click.style(f"{finding.level:5}", fg=COLOURS[finding.level], bold=finding.level is not Level.OK)
    click.echo(f"{mark} {finding.check:16} {finding.detail}")
    if finding.advice:
        click.echo(f"{'':23}→ {finding.advice}")
