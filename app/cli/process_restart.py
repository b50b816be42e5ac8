"""`tidemill process restart`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import click

from app.cli.modules import application
from app.cli.output import agree, document, json_option, several, yes_option
from app.cli.process_words import JsonObject, JsonText, ProcessId, read_json, standing
from app.errors import BadRequest, SettingsError
from app.settings import settings
from processes import operate
from processes.operate import Restarted
from processes.overriding import UNCHANGED
from processes.shown import Shown
from processes.states import ProcessState
from processes.wording import clean, listed


class JsonValue(JsonText):
    """JSON, and nothing else: a text has its quotes."""

    name = "JSON"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return read_json(value)
        except ValueError as error:
            told = f"{clean(value, 50)!r} is no JSON: {clean(str(error), 100)}"
            self.fail(f"{told}; text is written with quotes: '\"{clean(value, 20)}\"'", param, ctx)


class JsonList(JsonValue):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        found = super().convert(value, param, ctx)
        if not isinstance(found, list):
            self.fail(f"{clean(str(value), 50)!r} is no JSON list, such as '[17, \"box\"]'", param, ctx)
        return found


@click.command()
@click.argument("process_id", metavar="ID", type=ProcessId())
@click.option("--from", "task", metavar="TASK", type=click.IntRange(1, 2**31 - 1), help="From this task; else anew.")
@click.option("--arguments", "args", type=JsonList(), help="The task is called with these from now on: a JSON list.")
@click.option("--kwargs", type=JsonObject(), help="The same by name: a JSON object.")
@click.option("--result", type=JsonValue(), default=UNCHANGED, help="The task is not called; this is its value.")
@click.option("--copy", is_flag=True, help="In a new process, which keeps the results; this one stays as it is.")
@click.option("--repeat", is_flag=True, help="What is not repeatable is called again: that is meant.")
@click.option("--reason", metavar="TEXT", help="Why: kept in the audit.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done again.")
@json_option
@yes_option
def restart(
    *,
    process_id: int,
    task: int | None,
    repeat: bool,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
    yes: bool,
    copy: bool,
    **given: Any,
) -> None:
    """Does a process again, from its start or from a task.

    Shows what is called again and what is forgotten, and asks. What rests on the task is done again too, the rest
    keeps its results. Answers to what was handed out before do not count any more. --arguments are written as 'show
    --json' has them: {"$value": 7} is the value of task 7. --json goes with --dry-run.

    \b
    Examples:
      tidemill process restart 17 --from 3
      tidemill process restart 17 --from 3 --arguments '["o-1", 100]' --copy
      tidemill process restart 17 --from 3 --result '{"paid": true}' --reason 'paid by hand'
      tidemill process restart 17 --from 3 --dry-run --json | jq .actors
    """
    if as_json and not dry_run:
        raise click.UsageError("--json shows what would be done again: give --dry-run as well")
    with_arguments = given["args"] is not None or given["kwargs"] is not None
    if with_arguments and given["result"] is not UNCHANGED:
        raise click.UsageError("A task whose --result is given is not called: give it no arguments.")
    found = standing(process_id)
    if found.state is ProcessState.REGISTERED:
        raise BadRequest(f"process {process_id} has not begun: there is nothing to do again")
    if with_arguments:
        _import_modules()
    planned = operate.preview(process_id, task, copy=copy, **given)
    if as_json:
        document(asdict(planned))
        return
    _tell(found, planned)
    if dry_run:
        click.echo("Nothing was changed.")
        return
    agree(_question(planned, task, copy=copy), yes=yes)
    repeat = repeat or _agree_to_repeat(planned, yes=yes)
    done = operate.restart(process_id, task, copy=copy, repeat=repeat, reason=reason, **given)
    again = f"{several(len(done.again), 'task')} again"
    if done.copy is not None:
        click.echo(f"process {done.copy} is the copy, {again}: tidemill process show {done.copy}")
    else:
        click.echo(f"process {process_id} goes on, {again}: tidemill process show {process_id}")


def _import_modules() -> None:
    """Where the code is at hand, arguments are checked by it."""
    if settings().modules:
        with suppress(SettingsError):
            application()


def _question(planned: Restarted, task: int | None, *, copy: bool) -> str:
    whose = f"process {planned.process_id}{'' if task is None else f' from task {task}'}"
    return f"Make a copy of {whose}?" if copy else f"Restart {whose}?"


def _agree_to_repeat(planned: Restarted, *, yes: bool) -> bool:
    """--yes says that nobody is there to read the names."""
    if not planned.not_repeatable:
        return False
    names = clean(", ".join(planned.not_repeatable), 200)
    if yes or not sys.stdin.isatty():
        raise click.UsageError(f"Not repeatable, and called again: {names}. Say --repeat if that is meant.")
    agree(f"Call {names} again, though not repeatable?", yes=False)
    return True


def _tell(found: Shown, planned: Restarted) -> None:
    click.echo(f"process {found.id} {clean(found.name)} is {found.state}, {several(len(found.tasks), 'task')}")
    actors = {task.number: task.actor for task in found.tasks}
    given = () if planned.given is None else (planned.given,)
    for title, numbers in (
        ("is given its result", given),
        ("called again", planned.again),
        ("take another value", planned.follows),
        ("forgotten, asked for anew", planned.forgotten),
    ):
        if numbers:
            click.echo(f"  {title:26} {several(len(numbers), 'task')}: {_by_actor(actors, numbers)}")
    changed = (*given, *planned.again, *planned.follows, *planned.forgotten)
    kept = len(actors.keys() - set(changed))
    if kept > 0:
        click.echo(f"  {'stay as they are':26} {several(kept, 'task')}")
    for name, numbers in planned.not_repeatable.items():
        click.secho(f"! {clean(name, 100)} is not repeatable, and was called: task {listed(numbers)}", fg="yellow")


def _by_actor(actors: dict[int, str], numbers: Sequence[int]) -> str:
    of: dict[str, list[int]] = {}
    for number in numbers:
        of.setdefault(actors.get(number, "?"), []).append(number)
    return clean("; ".join(f"{clean(name, 100)} (task {listed(each)})" for name, each in sorted(of.items())), 500)
