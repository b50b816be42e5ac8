"""`tidemill actor`: who does the steps of processes, under which settings, and what waits for them."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

import click

from app.cli.output import counted, document, heading, json_option, resting, table
from app.cli.process_words import Pair, known_actor, once
from app.db import transaction
from app.errors import BadRequest
from processes import listing, lookup
from processes.listing import Listed
from processes.preferences import configure
from processes.telling import as_declared, setting, settings_of
from processes.wording import clean


@click.group()
def actor() -> None:
    """Looks at actors and deciders, and steers them.

    NAME is the name of an actor or a decider, or of its queue. None of this needs their code.
    """


@actor.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """Lists actors and deciders with their tasks.

    'later' is what waits for a delay, or after a failure; 'timeouts' counts answers that did not come in time.

    \b
    Examples:
      tidemill actor list
      tidemill actor list --json | jq '.actors[] | select(.broken > 0)'
    """
    with transaction() as session:
        found = listing.actors(session)
    if as_json:
        document({"actors": [_data(each) for each in found]})
        return
    table(
        ("actor", "kind", "ready", "later", "in work", "broken", "oldest", "timeouts", "slots", "limits"),
        [_row(each) for each in found],
        empty="no actor is known: run 'tidemill migrate' with TIDEMILL_MODULES",
    )
    for each in found:
        _remark(each)


def _kind(each: Listed) -> str:
    return "decider" if each.decider else "outside" if each.outside else "actor"


def _row(each: Listed) -> tuple[object, ...]:
    return (
        *(clean(each.name), _kind(each), counted(each.ready), counted(each.later), counted(each.in_work)),
        *(counted(each.broken) or None, each.oldest, each.work_timeouts or None),
        *("polled" if each.outside else each.slots, _limits(each)),
    )


def _limits(each: Listed) -> str | None:
    words = ["BLOCKED"] if each.blocked or each.rests_why is not None else []
    words += [each.rate_limit] if each.rate_limit is not None else []
    words += [f"{each.max_parallel} at once"] if each.max_parallel is not None else []
    words += [] if each.settings["repeatable"] else ["not repeatable"]
    return ", ".join(words) or None


def _remark(each: Listed) -> None:
    name = clean(each.name)
    if each.removed_at is not None:
        click.secho(f"! {name} is not declared any more; what is left for it waits", fg="yellow")
    elif (rests := resting(each.rests_why, each.rests_until)) is not None:
        click.secho(f"! {name}: {rests}", fg="yellow")
    elif each.ready and not each.blocked and not each.outside and not each.slots:
        told = f"! {name}: {counted(each.ready)} are ready and no live worker takes them"
        click.secho(told, fg="red")
    elif each.unpolled:
        click.secho(f"! {name}: {counted(each.ready)} are ready and nobody polls for them", fg="yellow")


def _data(each: Listed) -> dict[str, Any]:
    return asdict(each) | {"kind": _kind(each), "queue": each.queue, "changed": each.changed}


@actor.command()
@click.argument("name", metavar="NAME")
@json_option
def show(*, name: str, as_json: bool) -> None:
    """Shows the settings of an actor or a decider.

    What holds now, what the code says, and where an operator has changed it.

    \b
    Example:
      tidemill actor show charge
    """
    with transaction() as session:
        [found] = listing.actors(session, lookup.actor(session, name))
    if as_json:
        document(_data(found))
        return
    click.secho(f"{clean(found.name)}  {_kind(found)}", bold=True)
    tasks = f"{counted(found.ready)} ready, {counted(found.later)} later, {counted(found.in_work)} in work"
    for word, value in (
        ("task", found.task),
        ("queue", found.queue),
        ("slots", "polled for from outside" if found.outside else str(found.slots)),
        ("tasks", f"{tasks}, {counted(found.broken)} broken"),
        ("work timeouts", str(found.work_timeouts)),
        ("blocked", "yes" if found.blocked else "no"),
    ):
        click.echo(f"  {word:14} {clean(value)}")
    heading("Settings")
    table(
        ("setting", "value", "the code says"),
        [_setting(found, word) for word in settings_of(found.settings, decider=found.decider)],
    )
    _remark(found)


def _setting(found: Listed, word: str) -> tuple[str, str, str]:
    value = setting(found.settings[word])
    if word not in found.changed:
        return word, value, "the same"
    return word, value, f"{setting(as_declared(word, found.declared.get(word)))}  (changed by an operator)"


@actor.command("set")
@click.argument("name", metavar="NAME")
@click.argument("changes", metavar="SETTING=VALUE…", type=Pair(), nargs=-1, required=True)
@click.option("--reason", metavar="TEXT", help="Why: kept in the audit.")
def set_(*, name: str, changes: tuple[tuple[str, str], ...], reason: str | None) -> None:
    """Changes settings of an actor or a decider.

    From the next hand-out on, for the whole cluster; they last until the code says something else than before.
    'tidemill actor show NAME' lists them. 'none' takes a timeout or a limit away.

    \b
    Examples:
      tidemill actor set charge work_timeout=5min retry=3 --reason 'their API is slow today'
      tidemill actor set charge rate_limit=10/s max_parallel=none
    """
    known = known_actor(name)
    try:
        done = configure(known, once(changes, "the setting"), reason=reason)
    except BadRequest as error:
        raise click.UsageError(str(error)) from None
    for word, (was, now) in done.items():
        same = "was so already" if was == now else f"was {setting(was)}"
        click.echo(f"{known}: {word} is {setting(now)}, {same}")


@actor.command()
@click.argument("name", metavar="NAME")
@click.option("--reason", metavar="TEXT", help="Why: kept in the audit.")
def block(*, name: str, reason: str | None) -> None:
    """Lets no more tasks of an actor be handed out.

    What is in work ends as usual, and its answers are taken.
    """
    known = known_actor(name)
    was, _ = configure(known, {"blocked": True}, reason=reason)["blocked"]
    click.echo(f"{known} {'was already' if was else 'is'} blocked: tidemill actor unblock {shlex.quote(known)}")


@actor.command()
@click.argument("name", metavar="NAME")
@click.option("--reason", metavar="TEXT", help="Why: kept in the audit.")
def unblock(*, name: str, reason: str | None) -> None:
    """Lets tasks of a blocked actor be handed out again."""
    known = known_actor(name)
    was, _ = configure(known, {"blocked": False}, reason=reason)["blocked"]
    click.echo(f"{known} is open" if was else f"{known} was not blocked")
