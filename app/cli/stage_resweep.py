"""`tidemill stage resweep`: a walk over all entities of a kind, started, steered and watched."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from app.cli import following
from app.cli.arguments import NONE, RateText, options
from app.cli.modules import application
from app.cli.output import agree, document, first_line, json_option, span, table, told_of_more, yes_option
from app.clock import Rate
from app.db import transaction
from app.errors import BadRequest, NotFound
from stages import lookup, resweep
from stages.definition import SYSTEM
from stages.lookup import Known
from stages.model import ResweepState
from stages.resweep import Progress
from stages.watched import kinds

LISTED = 20
_LIVE = (ResweepState.RUNNING, ResweepState.PAUSED)


def _flag(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(f"--{name}", is_flag=True, help=text)


_ACTIONS = (
    _flag("status", "Shows walks, the latest first, or that of STAGE or KIND."),
    _flag("pause", "Pauses the walk."),
    _flag("resume", "Lets a paused walk go on, and one that met an error try at once."),
    _flag("cancel", "Ends the walk; what it has put into queues stays there."),
)


@click.command("resweep")
@click.argument("what", metavar="[STAGE|KIND]", required=False)
@click.option("--rate", type=RateText(), help="Entities asked about in a time, as in 500/s, or 'none'.")
@click.option("--wait", is_flag=True, help="Shows how far it is until it has ended; Ctrl-C leaves it going.")
@options(*_ACTIONS)
@yes_option
@json_option
def walk(*, what: str | None, rate: str | None, wait: bool, yes: bool, as_json: bool, **actions: bool) -> None:
    """Asks a stage about all entities again.

    Or all stages of a kind. Who answers yes comes into the low lane, behind all else. For a new stage, or after its
    should_process has changed. It goes on without this command, over restarts. --rate with --resume changes the rate of
    a walk. To start one, the modules of the stages must be in TIDEMILL_MODULES.

    \b
    Examples:
      tidemill stage resweep offer.predict --rate 500/s --wait
      tidemill stage resweep --status
      tidemill stage resweep offer.predict --pause
      tidemill stage resweep offer.predict --resume --rate 50/s
    """
    chosen = [word for word, given in actions.items() if given]
    _check(what, chosen, rate, wait=wait, as_json=as_json)
    if chosen == ["status"] and not wait:
        _status(what, as_json=as_json)
        return
    name = _named(what or "")
    number = _live(name).id if chosen else _start(name, rate)
    if chosen == ["pause"]:
        resweep.pause(number)
        click.echo(
            f"the walk over {_words(name)} is paused: tidemill stage resweep {shlex.quote(_words(name))} --resume"
        )
    elif chosen == ["resume"]:
        if rate is not None:
            resweep.change_rate(number, None if rate == NONE else rate)
        resweep.resume(number)
        click.echo(f"the walk over {_words(name)} goes on" + ("" if rate is None else f", rate {rate}"))
    elif chosen == ["cancel"]:
        _cancel(name, number, yes=yes)
    if wait:
        _follow(name, number)


def _check(what: str | None, chosen: list[str], rate: str | None, *, wait: bool, as_json: bool) -> None:
    if len(chosen) > 1:
        raise click.UsageError(f"Say one of {' and '.join(f'--{word}' for word in chosen)}.")
    if what is None and (chosen != ["status"] or wait):
        raise click.UsageError("Say which: a STAGE, or a KIND for all of its stages.")
    if rate is not None and chosen not in ([], ["resume"]):
        raise click.UsageError("--rate goes with a start or with --resume.")
    if wait and chosen in (["pause"], ["cancel"]):
        raise click.UsageError("--wait goes with a start, --status or --resume.")
    if as_json and (chosen != ["status"] or wait):
        raise click.UsageError("--json goes with --status.")


def _named(words: str) -> Known:
    """A kind means its system stage, which asks all others."""
    with transaction() as session:
        known = lookup.known_stages(session)
    of = {each.kind for each in known}
    if words in of:
        return Known(words, SYSTEM)
    try:
        return lookup.among(known, words)
    except NotFound as error:
        text = str(error).replace("there is no stage", "there is no stage and no kind", 1)
        raise NotFound(text) from None


def _words(name: Known) -> str:
    return name.kind if name.name == SYSTEM else str(name)


def _is(walk: Progress, name: Known) -> bool:
    return walk.kind == name.kind and (walk.stage or SYSTEM) == name.name


def _live(name: Known) -> Progress:
    for each in resweep.overview(resweep.LISTED_MOST, live=True):
        if _is(each, name):
            return each
    raise BadRequest(f"no walk over {_words(name)} is under way: 'tidemill stage resweep --status' shows past ones")


def _start(name: Known, rate: str | None) -> int:
    application()
    if name.kind not in kinds:
        raise BadRequest(
            f"the code of {name.kind} is not here, and a walk begins where its model is: "
            "name the modules in TIDEMILL_MODULES"
        )
    number = resweep.start(_words(name), rate=None if rate == NONE else rate)
    found = resweep.progress(number)
    click.echo(
        f"a walk over {_words(name)} has begun, about {found.total} entities in {found.parts} parts: "
        f"tidemill stage resweep {shlex.quote(_words(name))} --status"
    )
    return number


def _cancel(name: Known, number: int, *, yes: bool) -> None:
    found = resweep.progress(number)
    click.echo(f"{found.asked} of about {found.total} entities were asked about, {found.wanted} times wanted")
    agree(f"Cancel the walk over {_words(name)}?", yes=yes)
    resweep.cancel(number)
    click.echo(f"the walk over {_words(name)} is cancelled; what it has put into queues stays there")


def _status(what: str | None, *, as_json: bool) -> None:
    found = resweep.overview(LISTED if what is None else resweep.LISTED_MOST)
    if what is not None:
        name = _named(what)
        found = [each for each in found if _is(each, name)][:LISTED]
    if as_json:
        document({"resweeps": [asdict(each) | {"percent": each.percent, "left": each.left} for each in found]})
        return
    table(
        ("walk", "over", "state", "done", "asked", "wanted", "unread", "rate", "limit", "left", "started", "ended"),
        [_row(each) for each in found],
        empty="there was no walk yet",
    )
    for each in found:
        if each.error is not None and each.state in _LIVE:
            click.secho(f"! walk {each.id}, the last error: {first_line(each.error)}", fg="yellow")
    told_of_more(found, LISTED)


def _row(each: Progress) -> tuple[object, ...]:
    so_far = None if each.rate_so_far is None else f"{each.rate_so_far:.1f}/s"
    limit = None if each.rate is None else str(Rate(each.rate))
    over = each.kind if each.stage is None else f"{each.kind}.{each.stage}"
    return (
        *(each.id, over, each.state, f"{each.percent:.1f}%", each.asked, each.wanted, each.failed or None),
        *(so_far, limit, each.left, each.started_at, each.ended_at),
    )


def _follow(name: Known, number: int) -> None:
    """Until it has ended."""
    found = following.follow(
        "entities asked about",
        lambda: resweep.progress(number),
        lambda each: each.asked,
        lambda each: each.state in _LIVE,
    )
    if found.state in _LIVE:
        click.echo(f"the walk over {_words(name)} goes on: tidemill stage resweep {shlex.quote(_words(name))} --status")
        click.get_current_context().exit(130)
    took = "" if found.ended_at is None else f" in {span(found.ended_at - found.started_at)}"
    unread = f", {found.failed} could not be read" if found.failed else ""
    asked = f"{found.asked} entities asked about, {found.wanted} times wanted{unread}"
    click.echo(f"the walk over {_words(name)} is {found.state}{took}: {asked}")
    if found.state != ResweepState.DONE:
        click.get_current_context().exit(1)
