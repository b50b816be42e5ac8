"""How results are shown: plain tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

# Here too, where all that is shown comes from.
from app.words import counted as counted
from app.words import first_line as first_line
from app.words import resting as resting
from app.words import several as several
from app.words import span as span
from app.words import when as when

json_option: Callable[[Any], Any] = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


def document(value: Any) -> None:
    click.echo(json.dumps(value, default=_plain, ensure_ascii=False, indent=2))


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            return value.total_seconds()
        case _:
            return str(value)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "nothing") -> None:
    """Columns as wide as their content; on a terminal the last one ends at its edge."""
    lines = [[_cell(value) for value in row] for row in rows]
    if not lines:
        click.echo(empty)
        return
    widths = [max(len(line[i]) for line in (headers, *lines)) for i in range(len(headers))]
    edge = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.secho(_line(headers, widths, edge), bold=True)
    for line in lines:
        click.echo(_line(line, widths, edge))


def _line(cells: Sequence[str], widths: Sequence[int], edge: int | None) -> str:
    text = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
    return text if edge is None or len(text) <= edge else text[: edge - 1] + "…"


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case datetime():
            return when(value)
        case timedelta():
            return span(value)
        case _:
            return " ".join(str(value).split())


def told_of_more(found: Sequence[Any], limit: int) -> None:
    if len(found) == limit:
        click.echo(f"({limit} are shown; --limit shows more)", err=True)


def heading(text: str) -> None:
    click.secho(f"\n{text}", bold=True)


def agree(question: str, *, yes: bool) -> None:
    """Asks before much is changed; ends the command where the answer is no, or nobody is there to give one."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody can be asked here: say --yes.")
    if not click.confirm(question):
        click.echo("Nothing was changed.")
        click.get_current_context().exit(1)


yes_option: Callable[[Any], Any] = click.option("--yes", is_flag=True, help="Do not ask.")
