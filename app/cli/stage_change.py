"""`tidemill stage pause | resume | limit | reset | offer | delete | redrive`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta

import click

from app.cli.arguments import OrNone, RateText, limits_given
from app.cli.output import agree, counted, first_line, several, table, when, yes_option
from app.cli.progress import progress
from app.cli.stage_words import ANY_ID, Ahead, id_argument, kind_argument, shown_id, stage_argument
from app.db import transaction
from app.errors import BadRequest, NotFound
from stages import listing, lookup, operate, redriving
from stages.lookup import Known
from stages.parked import GROUPED, Selection
from stages.redriving import Preview


def _known(words: str) -> Known:
    with transaction() as session:
        return lookup.stage(session, words)


@click.command()
@stage_argument
def pause(*, stage: str) -> None:
    """Lets a stage visit nothing more.

    What is being visited ends as usual; entities keep coming into its queue, in both lanes.
    """
    known = _known(stage)
    new = operate.pause(known)
    click.echo(f"{known} {'is' if new else 'was already'} paused: tidemill stage resume {shlex.quote(str(known))}")


@click.command()
@stage_argument
def resume(*, stage: str) -> None:
    """Lets a paused stage visit again."""
    known = _known(stage)
    click.echo(f"{known} is open" if operate.resume(known) else f"{known} was not paused")


@click.command()
@stage_argument
@click.option("--rate", type=RateText(), help="Visits a second, minute, hour or day, as in 100/s, or 'none'.")
@click.option("--parallel", type=OrNone(1), help="How many may be made at once, or 'none'.")
@click.option("--burst", type=click.FloatRange(min=1), help="How many unused visits of the rate may be saved up.")
def limit(*, stage: str, rate: str | None, parallel: int | str | None, burst: float | None) -> None:
    """Limits how a stage visits, for the whole cluster.

    From the next claim on, for both lanes together. What is left out stays. What the code declares is applied again
    only when that changes.

    \b
    Examples:
      tidemill stage limit offer.predict --rate 100/s --parallel 8
      tidemill stage limit offer.predict --rate none
    """
    changes = limits_given(rate, parallel, burst)
    known = _known(stage)
    operate.limit(known, **changes)
    told = {"rate": rate, "parallel": parallel, "burst": None if burst is None else f"{burst:g}"}
    click.echo(f"{known}: " + ", ".join(f"{word} {value}" for word, value in told.items() if value is not None))


@click.command()
@stage_argument
def reset(*, stage: str) -> None:
    """Begins the count of failed should_process anew.

    When its cause is mended, so that the list and the doctor tell of new failures only.
    """
    known = _known(stage)
    click.echo(f"should_process of {known} had failed {operate.reset(known)} times; the count begins anew")


@click.command(context_settings=ANY_ID)
@kind_argument
@id_argument
@click.argument("stage", metavar="STAGE")
@click.option("--at", type=Ahead(), help="When to visit: 2030-07-01T12:00:00Z, or a span from now such as 2h.")
@click.option("--low", is_flag=True, help="Into the low lane, behind everything else.")
def offer(*, kind: str, entity_id: str, stage: str, at: datetime | timedelta | None, low: bool) -> None:
    """Puts an entity into the queue of a stage.

    If it is there already, the earlier of both times counts. Offered to 'system', all stages of the kind are asked.
    Whether there is such an entity, its visit finds out: one that is not there leaves the queue again.

    \b
    Examples:
      tidemill stage offer offer 17 predict
      tidemill stage offer offer 17 predict --at 2h --low
    """
    with transaction() as session:
        known = lookup.of_kind(session, kind, stage)
    text = lookup.entity(known.kind, entity_id)
    if operate.offer(known, text, at, low=low):
        check = f"tidemill stage check {shlex.join([known.kind, text])}"
        click.echo(f"{known.kind} {shown_id(text)} is in the queue of {known.name}: {check}")
    else:
        click.echo(f"{known.kind} {shown_id(text)} was in the queue of {known.name} already, for no later time")


@click.command(context_settings=ANY_ID)
@kind_argument
@id_argument
@click.argument("stage", metavar="STAGE")
@yes_option
def delete(*, kind: str, entity_id: str, stage: str, yes: bool) -> None:
    """Takes an entity out of the queue of a stage.

    Shows what is there, and asks: a timer is gone with it. If it is being visited just now, the visit saves nothing.

    \b
    Example:
      tidemill stage delete offer 17 predict
    """
    with transaction() as session:
        known = lookup.of_kind(session, kind, stage)
        text = lookup.entity(known.kind, entity_id)
        found = [each for each in listing.visits_of(session, known.kind, text) if each.stage == known.name]
    if not found:
        raise NotFound(f"{known.kind} {shown_id(text)} is not in the queue of {known.name}: nothing was changed")
    [visit] = found
    words = f" for {when(visit.visit_time)}" if visit.visit_time is not None else ""
    click.echo(f"{known.kind} {shown_id(text)} is {visit.state} in {known.name}{words}")
    agree(f"Take it out of the queue of {known.name}?", yes=yes)
    gone = operate.delete(known, text)
    click.echo(f"it is {'out of the queue' if gone else 'gone already'}")


@click.command()
@click.argument("stage", metavar="[STAGE]", required=False)
@click.option("--id", "ids", multiple=True, help="This entity; repeatable; needs STAGE.")
@click.option("--error", help="Whose error has this text in it.")
@click.option("--group", help="Of this group of errors, as 'stage parked' names it.")
@click.option("--all", "every", is_flag=True, help="Of all stages.")
@yes_option
def redrive(
    *, stage: str | None, ids: tuple[str, ...], error: str | None, group: str | None, every: bool, yes: bool
) -> None:
    """Visits again what is parked.

    At once, with all attempts anew. Shows how many of which error, and asks; entities that are named by --id are not
    asked about. What fails again while this works stays parked.

    \b
    Examples:
      tidemill stage redrive offer.predict --id 17 --id 18
      tidemill stage redrive --group 3f9c01aa
      tidemill stage redrive offer.predict --error timeout --yes
    """
    if every and (stage or ids):
        raise click.UsageError("--all means every stage: leave out STAGE and --id, or --all.")
    if not (stage or error or group or every):
        raise click.UsageError("Say what: a STAGE, --error, --group or --all.")
    if ids and (stage is None or error or group):
        raise click.UsageError("--id names entities of a STAGE: give that, and neither --error nor --group.")
    if stage is not None and ids:
        _redrive_named(_known(stage), ids)
        return
    with transaction() as session:
        known = [lookup.stage(session, stage)] if stage is not None else lookup.known_stages(session)
    if stage is not None and known[0].removed:
        raise BadRequest(f"stage {known[0]} is not declared any more: no worker would visit for it")
    selection = Selection(tuple(each for each in known if not each.removed), error=error, group=group)
    _redrive(selection, yes=yes)


def _redrive_named(known: Known, ids: Sequence[str]) -> None:
    if known.removed:
        raise BadRequest(f"stage {known} is not declared any more: no worker would visit for it")
    texts = list(dict.fromkeys(lookup.entity(known.kind, each) for each in ids))
    moved = redriving.redrive_named(known, texts)
    for each in texts:
        if each in moved:
            click.echo(f"{known.kind} {shown_id(each)} is visited again")
        else:
            click.echo(f"Error: {known.kind} {shown_id(each)} is not parked in {known.name}", err=True)
    if len(moved) < len(texts):
        click.get_current_context().exit(1)


def _redrive(selection: Selection, *, yes: bool) -> None:
    with transaction() as session:
        found = redriving.preview(session, selection)
    if not found.total:
        click.echo("Nothing matches.")
        return
    _show(found)
    visits = f"{found.total} visits or more" if found.more else several(found.total, "visit")
    agree(f"Redrive {visits}?", yes=yes)
    with progress("redriven", found.total) as bar:
        done = redriving.redrive(selection, found.until, expected=found.total, told=bar.at)
    click.echo(f"{several(done.visits, 'visit')} redriven")
    if done.left:
        click.echo(f"Note: {done.left} are being changed by somebody just now and stay parked: try again", err=True)


def _show(found: Preview) -> None:
    table(
        ("stage", "group", "visits", "for example", "error"),
        [(f"{g.kind}.{g.stage}", g.name, counted(g.count), g.entity_id, first_line(g.error)) for g in found.groups],
    )
    shown = sum(group.count for group in found.groups)
    if shown < found.total:
        click.echo(f"… and {found.total - shown} more, in smaller groups")
    if found.more:
        click.echo(f"Of each stage, the latest {GROUPED} were counted.")


COMMANDS = (pause, resume, limit, reset, offer, delete, redrive)
