"""What is said of stages, and what may be written for one."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from app.cli.arguments import NONE, Moment
from stages.listing import Listed

#: -5 is an id, not an option.
ANY_ID = {"ignore_unknown_options": True}

stage_argument: Callable[[Any], Any] = click.argument("stage", metavar="STAGE")
kind_argument: Callable[[Any], Any] = click.argument("kind", metavar="KIND")
id_argument: Callable[[Any], Any] = click.argument("entity_id", metavar="ID")


def shown_id(entity_id: str) -> str:
    """In quotes, as it may be written again; what cannot be shown is escaped."""
    return f"'{entity_id}'" if entity_id.isprintable() else ascii(entity_id)


class Ahead(Moment):
    """An ISO time with its zone, `now`, or a span counted from now."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | timedelta:
        if value == "now":
            return datetime.now(UTC)
        if isinstance(value, str) and value.strip().endswith(" ago"):
            self.fail(f"{value!r} lies behind: leave it out for now, or write a time or a span such as 2h", param, ctx)
        return super().convert(value, param, ctx)


def limits(stage: Listed) -> str | None:
    words = ["PAUSED"] if stage.paused or stage.rests_why is not None else []
    if stage.rate_limit is not None:
        words.append(stage.rate_limit + (f" burst {stage.burst:g}" if stage.burst and stage.burst > 1 else ""))
    if stage.max_parallel is not None:
        words.append(f"{stage.max_parallel} at once")
    return ", ".join(words) or None


def as_declared(stage: Listed) -> str | None:
    """The command that goes back to the limits that the code declares, where others are in force."""
    declared = stage.declared
    if declared is None or (declared.get("max_parallel"), declared.get("rate_limit")) == (
        stage.max_parallel,
        stage.rate_limit,
    ):
        return None
    words = f"--parallel {declared.get('max_parallel') or NONE} --rate {declared.get('rate_limit') or NONE}"
    return f"tidemill stage limit {shlex.quote(f'{stage.kind}.{stage.name}')} {words}"
