"""Why a task runs or does not, for people: the conditions, the state, what holds it, the last run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from app.cli.output import span, when
from triggers.why import STATES, Why

COLOURS = {"quarantined": "red", "paused": "yellow", "removed": "yellow", "running": "cyan", "ready": "green"}
FIRST_COLUMN = 9


def shown(why: Why, now: datetime | None = None) -> Iterator[str]:
    """Styled; the one who prints takes the colours away where nobody sees them."""
    yield click.style(why.task, bold=True)
    yield from tree(why.tree)
    yield ""
    if why.cause is not None:
        yield _field("evaluated", f"{when(why.at, now)} by {why.cause}")
    yield _field("state", click.style(STATES[why.state], fg=COLOURS.get(why.state)))
    for number, hold in enumerate(why.holds):
        yield _field("" if number else "held by", hold)
    for number, slot in enumerate(why.kept):
        yield _field("" if number else "kept", slot)
    yield _field("run" if why.cause is not None else "last run", run(why.run, now))


def tree(node: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    mark = click.style("✓", fg="green") if node["fired"] else click.style("✗", fg="red")
    yield f"{indent}{mark} {node['sentence']}"
    for child in node.get("children", ()):
        yield from tree(child, indent + "  ")


def _field(name: str, value: str) -> str:
    return f"{name:{FIRST_COLUMN}} {value}"


def run(told: Mapping[str, Any], now: datetime | None = None) -> str:
    if not told:
        return "none"
    words = [f"{told['id']} is {told['state']}"]
    if told["kind"] == "manual":
        words.append(f"by hand ({told['requested_by'] or 'somebody'})")
    if told["window_from"] is not None:
        words.append(f"from {_moment(told['window_from'])} to {_moment(told['window_to'])}")
    if told["started_at"] is not None:
        words.append(f"started {when(told['started_at'], now)}")
        if told["ended_at"] is not None:
            words.append(f"took {span(told['ended_at'] - told['started_at'])}")
    else:
        words.append(f"made {when(told['created_at'], now)}")
    if told["attempts"] > 1:
        words.append(f"{told['attempts']} tries")
    if told["error"]:
        words.append(click.style(_first_line(told["error"]), fg="red"))
    return ", ".join(words)


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 300 else line[:299] + "…"
