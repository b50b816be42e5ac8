"""What is said of processes and actors, and what may be written for their arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from itertools import pairwise
from typing import Any

import click

from app.cli.output import span, when
from app.clock import duration
from app.db import transaction
from app.errors import NotFound
from processes import lookup, showing
from processes.drawing import Level
from processes.overriding import read_json as read_json
from processes.shown import Shown, TaskShown
from processes.states import ProcessState
from processes.telling import SHORT, called_with, stored, stored_text
from processes.telling import as_json as as_json
from processes.telling import value_text as value_text
from processes.wording import clean, listed

COLOURS = {Level.BAD: "red", Level.BUSY: "cyan"}
STATE_COLOURS = {ProcessState.FINISHED: "green", ProcessState.BROKEN: "red", ProcessState.ABORTED: "yellow"}
#: Of a value that is what was asked for.
LONG = 10_000


class JsonText(click.ParamType[Any]):
    """JSON if it reads as JSON, else the text as it is."""

    name = "JSON|TEXT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        with suppress(ValueError):
            return read_json(value)
        if value.startswith("-"):
            # Options that there are not come here too.
            self.fail(
                f"there is no option {clean(value, 50)!r}; text with a dash in front is written as JSON: '\"-…\"'",
                param,
                ctx,
            )
        return value


class JsonObject(click.ParamType[dict[str, Any]]):
    name = "JSON"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        try:
            found = value if isinstance(value, dict) else read_json(str(value))
        except ValueError as error:
            self.fail(f"{clean(str(value), 50)!r} is no JSON: {clean(str(error), 100)}", param, ctx)
        if not isinstance(found, dict):
            self.fail(f"{clean(str(value), 50)!r} is no JSON object, such as '{{\"amount\": 100}}'", param, ctx)
        return found


class Pair(click.ParamType[tuple[str, str]]):
    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        word, equals, text = str(value).partition("=")
        if not equals or not word.strip():
            self.fail(f"{clean(str(value), 50)!r} must be {self.name}", param, ctx)
        return word.strip(), text


class Seconds(click.ParamType[timedelta]):
    """A number of seconds, or a span such as `5min`."""

    name = "SECONDS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        text = str(value).strip()
        try:
            return duration(f"{text}s" if text.replace(".", "", 1).isdecimal() else text)
        except ValueError:
            self.fail(f"{clean(text, 50)!r} is no number of seconds, nor a span such as 5min", param, ctx)


class Waiting(click.Command):
    """A command with `--wait [SECONDS]`. Click takes a negative number behind it for an argument."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for word, after in pairwise([*args, ""]):
            text = after if word == "--wait" else word.removeprefix("--wait=")
            if word.startswith("--wait") and text.startswith("-") and text[1:2].isdigit():
                ctx.fail(f"{clean(text, 50)!r} is no number of seconds: --wait has zero or more.")
            if word == "--":
                break
        return super().parse_args(ctx, args)


def once(pairs: tuple[tuple[str, str], ...], what: str) -> dict[str, str]:
    """By name; refused if one is given twice."""
    found: dict[str, str] = {}
    for word, value in pairs:
        if word in found:
            raise click.UsageError(f"{what} {clean(word, 50)!r} is given twice.")
        found[word] = value
    return found


class ProcessId(click.ParamType[int]):
    name = "ID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not (text.isascii() and text.isdigit()):
            self.fail(f"{clean(text, 50)!r} is no id of a process, which is a whole number", param, ctx)
        # Larger ones there are not, and reading them would take long.
        if len(text) > 19 or not 0 < int(text) < 2**63:
            raise NotFound(f"there is no process {clean(text, 50)}")
        return int(text)


def standing(process_id: int) -> Shown:
    """How it stands: of its tasks, nothing that they carry is read."""
    with showing.one_moment() as session:
        return showing.load(session, process_id, answers=0, text=0)


def known_actor(words: str) -> str:
    with transaction() as session:
        return lookup.actor(session, words)


def process_data(shown: Shown) -> dict[str, Any]:
    words = {name: getattr(shown, name) for name in ("id", "name", "state", "error", "priority", "custom_id")}
    words |= {"idempotency_key": shown.idempotency_key, "attributes": shown.attributes}
    words |= _called(shown.arguments) | {"value": stored(shown.result)}
    words |= {"copied_from": shown.copied_from, "copies": list(shown.copies)}
    words |= {name: getattr(shown, name) for name in ("registered_at", "begun_at", "ended_at", "deadline_at", "at")}
    return words | {"tasks": [_task_data(task) for task in shown.tasks]}


def _task_data(task: TaskShown) -> dict[str, Any]:
    words = {name: getattr(task, name) for name in task.__dataclass_fields__}
    words |= _called(words.pop("arguments")) | {"value": stored(words.pop("result"))}
    words["broken"] = task.broken and asdict(task.broken)
    return words | {"answers": [asdict(each) for each in task.answers]}


def _called(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return {name: found.get(name) if isinstance(found, dict) else None for name in ("args", "kwargs")}


def facts(shown: Shown) -> Iterator[tuple[str, str]]:
    """What is told of a process before its tasks."""
    if shown.error is not None:
        yield "error", clean(shown.error)
    if shown.state is ProcessState.FINISHED:
        yield "value", stored_text(shown.result, LONG)
    for name, value in (("custom id", shown.custom_id), ("idempotency key", shown.idempotency_key)):
        if value is not None:
            yield name, clean(value)
    if shown.attributes:
        yield "attributes", value_text(shown.attributes, SHORT)
    yield "called with", called_with(shown.arguments)
    if shown.copied_from is not None:
        yield "copied from", f"process {shown.copied_from}"
    if shown.copies:
        yield "copied as", f"process {listed(shown.copies)}"
    if shown.priority:
        yield "priority", str(shown.priority)
    moments = (("registered", shown.registered_at), ("begun", shown.begun_at), ("ended", shown.ended_at))
    for name, moment in moments:
        if moment is not None:
            yield name, when(moment, shown.at)
    if shown.deadline_at is not None and shown.ended_at is None:
        yield "its time is over", when(shown.deadline_at, shown.at)
    if shown.begun_at is not None and shown.ended_at is not None:
        yield "took", span(shown.ended_at - shown.begun_at)


def counts(shown: Shown) -> str:
    """`4 tasks: 2 FINISHED, 1 BROKEN, 1 PENDING`"""
    found: dict[str, int] = {}
    for task in shown.tasks:
        found[task.state] = found.get(task.state, 0) + 1
    each = ", ".join(f"{count} {state}" for state, count in sorted(found.items(), key=lambda pair: -pair[1]))
    return f"{len(shown.tasks)} {'task' if len(shown.tasks) == 1 else 'tasks'}: {each}"
