"""`tidemill ctl`: how far each data set has got, read and moved by hand."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from app.cli.arguments import limit_option
from app.cli.interrupts import Interrupts
from app.cli.output import agree, document, json_option, table, told_of_more, when, yes_option
from app.clock import instant
from app.db import transaction
from app.errors import NotFound, Unavailable
from triggers import ctl as control
from triggers import foresee
from triggers.ctl import Change, Dependent, Follower, Parameter

POLL_SECONDS = 0.5
MOST = 1_000_000
_EXAMPLE = "loaded_to=2026-07-01T00:00:00Z"


class Assignment(click.ParamType[tuple[str, datetime]]):
    """`PARAM=TIME`; TIME is an ISO time with its zone, `now`, or a span with its direction."""

    name = "PARAM=TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, datetime]:
        if isinstance(value, tuple):
            return value
        # A time has no equals sign in it; a parameter may.
        name, sign, text = str(value).rpartition("=")
        name, text = name.strip(), text.strip()
        if not (sign and name and text):
            self.fail(f"{value!r} is no parameter with its value: write PARAM=TIME, as in {_EXAMPLE}", param, ctx)
        try:
            return name, instant(text, datetime.now(UTC))
        except ValueError as error:
            self.fail(str(error), param, ctx)


assignments = click.argument("assignments", metavar="PARAM=TIME…", type=Assignment(), nargs=-1, required=True)


def _named(entity: str, given: Sequence[tuple[str, datetime]]) -> dict[Parameter, datetime]:
    found = {(entity, name): moment for name, moment in given}
    if len(found) < len(given):
        raise click.UsageError("A parameter is given twice: write each once.")
    return found


@click.group()
def ctl() -> None:
    """Shows and moves the control table: how far each data set has got."""


@ctl.command()
@click.argument("entity")
@assignments
@click.option("--dry-run", is_flag=True, help="Change nothing; say which tasks would start.")
@json_option
def advance(*, entity: str, assignments: Sequence[tuple[str, datetime]], dry_run: bool, as_json: bool) -> None:
    """Moves parameters of an entity forward.

    All of them, or none when one of them lies behind its value. TIME is an ISO time with its zone, 'now', or '2h ago'.

    \b
    Examples:
      tidemill ctl advance dds.orders loaded_to=2026-07-01T00:00:00Z
      tidemill ctl advance dds.orders loaded_to=now "checked_to=2h ago"
      tidemill ctl advance dds.orders loaded_to=now --dry-run
    """
    values = _named(entity, assignments)
    moved = foresee.would_move(values) if dry_run else control.advance_many(values)
    told: dict[str, Any] = {"dry_run": dry_run, "values": _as_values(values, moved)}
    if dry_run:
        with transaction() as session:
            starts = foresee.would_start(session, {name: values[name] for name in moved})
        told["would_start"] = [asdict(each) for each in starts]
    if as_json:
        document(told)
        return
    for name, moment in values.items():
        words = ("would move to" if dry_run else "moved to") if name in moved else "was there already:"
        click.echo(f"{_dotted(name)} {words} {_precise(moment)}")
    if dry_run:
        _show_starts(starts)


def _as_values(values: dict[Parameter, datetime], moved: set[Parameter]) -> list[dict[str, Any]]:
    return [
        {"entity": name[0], "parameter": name[1], "value": moment, "moved": name in moved}
        for name, moment in values.items()
    ]


def _show_starts(starts: Sequence[foresee.Start]) -> None:
    rows = [(each.task, each.pool, "no" if each.held else "at once", each.held) for each in starts]
    table(("task", "pool", "starts", "because"), rows, empty="no task would start")
    click.echo("Nothing was changed.")


@ctl.command()
@click.argument("entity")
@click.argument("parameter", required=False)
@click.option("--waiting-for", is_flag=True, help="With the tasks that wait for it, and how far it is from enough.")
@json_option
def get(*, entity: str, parameter: str | None, waiting_for: bool, as_json: bool) -> None:
    """Shows how far an entity has got.

    With a parameter, its value alone. Exit code 1 where there is none.

    \b
    Examples:
      tidemill ctl get dds.orders
      tidemill ctl get dds.orders loaded_to
      tidemill ctl get dds.orders loaded_to --waiting-for
    """
    found = control.of(entity, parameter)
    if waiting_for:
        with transaction() as session:
            waiting = foresee.waiting_for(session, entity, parameter)
        if found or waiting:
            _show_waiting(found, waiting, as_json=as_json)
            return
    if not found:
        name = entity if parameter is None else f"{entity}.{parameter}"
        raise NotFound(f"{name} has no value: check the name with 'tidemill ctl list', or advance it first")
    if as_json:
        document({"values": [asdict(each) for each in found]} if parameter is None else asdict(found[0]))
    elif parameter is not None:
        click.echo(_precise(found[0].value))
    else:
        _show(found)


def _show_waiting(found: Sequence[control.Value], waiting: Sequence[foresee.Waiting], *, as_json: bool) -> None:
    if as_json:
        document({"values": [asdict(each) for each in found], "waiting": [asdict(each) for each in waiting]})
        return
    for value in found:
        click.echo(f"{value.entity}.{value.parameter} is at {_precise(value.value)}")
    table(
        ("task", "parameter", "needs", "missing", "condition"),
        [
            (w.task, w.parameter, w.threshold and _precise(datetime.fromisoformat(w.threshold)), w.distance, w.sentence)
            for w in waiting
        ],
        empty="no task waits for it",
    )


@ctl.command("list")
@click.argument("pattern", required=False)
@limit_option(1000, MOST)
@json_option
def list_(*, pattern: str | None, limit: int, as_json: bool) -> None:
    """Lists parameters with their values.

    Of the entities that PATTERN names; * stands for any text.

    \b
    Example:
      tidemill ctl list 'mart.*'
    """
    found = control.values(pattern, limit=limit)
    if as_json:
        document({"values": [asdict(each) for each in found]})
    else:
        _show(found)
    told_of_more(found, limit)


def _show(found: Sequence[control.Value]) -> None:
    table(
        ("entity", "parameter", "value", "changed", "version", "epoch"),
        [(v.entity, v.parameter, v.value, v.changed_at, v.version, v.epoch) for v in found],
        empty="no such parameter has a value",
    )


@ctl.command()
@click.argument("entity")
@click.argument("parameter")
@limit_option(50, MOST)
@json_option
def history(*, entity: str, parameter: str, limit: int, as_json: bool) -> None:
    """Lists the changes of a parameter, the latest first.

    \b
    Example:
      tidemill ctl history dds.orders loaded_to --limit 5
    """
    found = control.history(entity, parameter, limit=limit)
    if as_json:
        document({"history": [asdict(each) for each in found]})
    else:
        table(
            ("id", "changed", "from", "to", "restated", "transaction"),
            [(c.id, c.changed_at, c.previous, c.value, c.restated, c.xid) for c in found],
            empty=f"{entity}.{parameter} has never changed",
        )
    told_of_more(found, limit)


@ctl.command()
@click.argument("pattern", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON document a line.")
def watch(*, pattern: str | None, as_json: bool) -> None:
    """Shows changes as they are committed, until Ctrl-C.

    Of the entities that PATTERN names; * stands for any text. None is left out, however late it commits.

    \b
    Example:
      tidemill ctl watch 'mart.*' --json
    """
    follower, silent = Follower(pattern), False
    click.echo("watching; Ctrl-C ends it", err=True)
    with Interrupts() as interrupts:
        # A line is written to its end.
        interrupts.patient()
        while not interrupts.wait(POLL_SECONDS):
            try:
                changes = follower.new()
            except Unavailable as error:
                if not silent:
                    click.echo(f"Note: {error}; it is tried again", err=True)
                silent = True
                continue
            silent = False
            for change in changes:
                click.echo(_as_line(change) if as_json else _as_sentence(change))


def _as_line(change: Change) -> str:
    return json.dumps(asdict(change), default=lambda moment: moment.astimezone(UTC).isoformat(), ensure_ascii=False)


def _as_sentence(change: Change) -> str:
    words = "restated to" if change.restated else "moved to" if change.previous else "began at"
    before = f" from {_precise(change.previous)}" if change.previous else ""
    return f"{change.changed_at.astimezone(UTC):%H:%M:%S} {change.entity}.{change.parameter} {words} " + (
        _precise(change.value) + before
    )


@ctl.command()
@click.argument("entity")
@assignments
@click.option("--reason", required=True, help="Why the value was wrong; it is kept in the audit.")
@yes_option
def restate(*, entity: str, assignments: Sequence[tuple[str, datetime]], reason: str, yes: bool) -> None:
    """Sets parameters to any value, back too.

    Shows what would change and which tasks rest on it, and asks. Afterwards it says what to do for each task.

    \b
    Example:
      tidemill ctl restate dds.orders loaded_to=2026-06-30T00:00:00Z --reason "the load of July 1st was empty"
    """
    values = _named(entity, assignments)
    control.checked_reason(reason)
    with transaction() as session:
        before = {each.parameter: each.value for each in control.of(entity, session=session)}
        tasks = control.dependents(session, list(values))
    rows = [(_dotted(name), before.get(name[1]), moment) for name, moment in values.items()]
    table(("parameter", "now", "restated to"), rows)
    click.echo(f"tasks that rest on this: {', '.join(each.task for each in tasks) or 'none'}")
    agree(f"Restate {len(values)} parameter{'s' if len(values) > 1 else ''} of {entity}?", yes=yes)
    restated = control.restate_many(values, reason=reason)
    for name, moment in values.items():
        click.echo(f"{_dotted(name)} is restated to {when(moment)}")
    _advise(restated.dependents, min(values.values()))


def _advise(tasks: Sequence[Dependent], to: datetime) -> None:
    for each in tasks:
        click.echo(f"\n{each.task} may have to work again; one of:")
        quoted = shlex.quote(each.task)
        if each.latched:
            click.echo(f"  tidemill reactive rewind {quoted} --to {_precise(to)}   # as if it had seen that last")
            click.echo(f"  tidemill reactive forget {quoted}   # as if it had never run")
        else:
            click.echo(f"  tidemill reactive run {quoted} --record   # once, by hand, and keep what it saw")


def _dotted(name: Parameter) -> str:
    return ".".join(name)


def _precise(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
