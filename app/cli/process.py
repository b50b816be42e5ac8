"""`tidemill process`: processes started, searched for and looked at."""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click

from app.cli import known_words, process_change, process_errors, process_search, process_templates
from app.cli.modules import application
from app.cli.output import document, heading, json_option, span
from app.cli.process_words import (
    COLOURS,
    STATE_COLOURS,
    JsonObject,
    JsonText,
    Pair,
    ProcessId,
    Seconds,
    Waiting,
    counts,
    facts,
    once,
    process_data,
    value_text,
)
from app.db import transaction
from app.errors import SettingsError
from app.settings import settings
from processes import lookup, showing, starting
from processes.drawing import draw
from processes.shown import Shown
from processes.states import ProcessState
from processes.wording import clean
from recovery import known, why
from recovery.explaining import told

#: Without --answers, of each task no more than these.
ANSWERS = 3
#: Why it stands, in a few words.
REASONS = 6
#: Of arguments and values that are only drawn.
TEXT = 2_000
TRACEBACKS = 3
FOREVER = "36500d"
PRIORITY = click.IntRange(starting.PRIORITIES[0], starting.PRIORITIES[-1])


@click.group()
def process() -> None:
    """Starts processes, finds them, shows them, and does them again.

    A process begins with a decider; NAME is its name. None of this needs the code of deciders and actors.
    """


for command in (*process_change.COMMANDS, process_search.search, process_templates.templates, process_errors.errors):
    process.add_command(command)


@process.command(cls=Waiting, context_settings={"ignore_unknown_options": True})
@click.argument("name", metavar="NAME")
@click.argument("args", metavar="[ARGS]…", nargs=-1, type=JsonText())
@click.option("--kwargs", type=JsonObject(), help="Arguments by name, as a JSON object.")
@click.option("--id", "custom_id", metavar="TEXT", help="What you call it; may be searched for.")
@click.option("--key", metavar="TEXT", help="With the same key, the same process: it is not started twice.")
@click.option("--attribute", "attributes", type=Pair(), multiple=True, help="May be searched for; may be repeated.")
@click.option("--priority", type=PRIORITY, default=0, show_default=True, help="A larger one comes first.")
@click.option("--wait", type=Seconds(), is_flag=False, flag_value=FOREVER, help="Wait for its end, at most so long.")
def start(
    *,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    custom_id: str | None,
    key: str | None,
    attributes: tuple[tuple[str, str], ...],
    priority: int,
    wait: timedelta | None,
) -> None:
    """Starts a process, and prints its id.

    Each of ARGS is JSON if it reads as JSON, else text. With --wait, its value comes on the next line, as JSON; exit
    code 1 if it is broken or aborted, or has not ended in time. Without a number, --wait stands at the end.

    \b
    Examples:
      tidemill process start fulfil o-1 --key o-1
      tidemill process start fulfil o-1 '{"express": true}' --kwargs '{"amount": 100}' --wait=30
    """
    given = once(attributes, "the attribute")
    _import_modules()
    with transaction() as session:
        decider = lookup.decider(session, name)
    process_id = starting.start(
        decider,
        *args,
        kwargs=kwargs,
        custom_id=custom_id,
        idempotency_key=key,
        attributes=given,
        priority=priority,
    )
    click.echo(process_id)
    if wait is not None:
        _wait(process_id, wait)


def _import_modules() -> None:
    """Where the code is at hand, arguments are checked by it."""
    if not settings().modules:
        return
    try:
        application()
    except SettingsError as error:
        click.echo(f"Note: {error}; arguments are checked when the process begins", err=True)


def _wait(process_id: int, timeout: timedelta) -> None:
    # Whoever reads the id from a pipe has it before the end.
    sys.stdout.flush()
    ended = showing.wait(process_id, timeout)
    if ended.state is ProcessState.FINISHED:
        click.echo(value_text(ended.value))
        return
    why = f": {clean(ended.error)}" if ended.error else ""
    click.echo(f"Error: process {process_id} is {ended.state}{why}", err=True)
    click.get_current_context().exit(1)


@process.command()
@click.argument("process_id", metavar="ID", type=ProcessId())
@click.option("--all", "unfold", is_flag=True, help="Each task on a line of its own.")
@click.option("--answers", is_flag=True, help="All failed attempts and refused answers, with their tracebacks.")
@json_option
def show(*, process_id: int, unfold: bool, answers: bool, as_json: bool) -> None:
    """Shows a process with its tasks.

    First why it stands, and what happens next. Each task stands below the decider that asked for it: what it waits
    for, how long it waited and worked, who works on it, what failed. Tasks that look alike are one line, unless --all
    is given. --json has everything.

    \b
    Examples:
      tidemill process show 17
      tidemill process show 17 --json | jq '.tasks[] | select(.state == "BROKEN")'
    """
    with showing.one_moment() as session:
        if as_json:
            found = showing.load(session, process_id)
        else:
            found = showing.load(session, process_id, answers=None if answers else ANSWERS, text=TEXT)
        rules = known.listed(session)
        reasons = why.stands(session, found, span)
    if as_json:
        document(
            process_data(found) | {"why": [asdict(each) for each in reasons], "known": known_words.data(found, rules)}
        )
        return
    click.secho(f"process {found.id}  {clean(found.name)}  ", bold=True, nl=False)
    click.secho(found.state, fg=STATE_COLOURS.get(found.state), bold=True)
    for reason in reasons[:REASONS]:
        since = "" if reason.since is None else f" (for {span(found.at - reason.since)})"
        click.echo(f"  {'stands':16} {told(reason)}{since}\n  {'':16} → {reason.next}")
    if len(reasons) > REASONS:
        click.echo(f"  {'':16} and for {len(reasons) - REASONS} more reasons: --json has them")
    for word, value in facts(found):
        click.echo(f"  {word:16} {value}")
    if not found.tasks:
        click.echo("it has not begun: a worker for its decider, or the next pass of a scheduler, begins it")
        return
    heading(counts(found))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in draw(found, span, width=width, unfold=unfold):
        colour = COLOURS.get(line.level)
        click.echo(line.text if colour is None else click.style(line.text, fg=colour))
    known_words.tell(found, rules)
    _tracebacks(found, every=answers)


def _tracebacks(found: Shown, *, every: bool) -> None:
    """Of each kind of error one, unless it is every one."""
    broken = [(task, task.broken) for task in found.tasks if task.broken is not None]
    kinds = {each.fingerprint: (task, each) for task, each in reversed(broken)}
    some = broken if every else list(reversed(kinds.values()))[:TRACEBACKS]
    for task, each in some:
        _traceback(f"Traceback of task {task.number}, {task.actor}", each.traceback)
    if len(broken) > len(some):
        click.echo(f"\n({len(broken) - len(some)} more are broken: --answers shows their tracebacks)")
    for task in found.tasks if every else ():
        # The last attempt of a broken task is what broke it.
        for answer in task.answers if task.broken is None else task.answers[:-1]:
            ago = span(found.at - answer.at)
            _traceback(f"Traceback of task {task.number}, {task.actor}, {ago} ago", answer.traceback)


def _traceback(title: str, text: str | None) -> None:
    if text:
        heading(clean(title))
        for line in text.rstrip().splitlines():
            # With its indentation, and without anything that a terminal would obey.
            indent = line[: len(line) - len(line.lstrip(" "))]
            click.echo(indent + clean(line))
