"""What may be written for a task or a moment on the command line of reactive tasks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from app.cli.arguments import Past

task_argument: Callable[[Any], Any] = click.argument("task", metavar="TASK")


class At(Past):
    """An ISO time with its zone, `now`, or a span counted backwards."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if value == "now":
            return datetime.now(UTC)
        if isinstance(value, str) and value.strip().startswith("in "):
            self.fail(f"{value!r} lies ahead: write a time, or how long ago, as in '2h ago'", param, ctx)
        found = super().convert(value, param, ctx)
        if not 2 <= found.year <= 9998:
            self.fail(f"{value!r} lies outside of the years 2 to 9998", param, ctx)
        return found


def named(moment: datetime) -> str:
    """As it may be written again."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
