"""`tidemill stage`: work that starts because an entity changed, looked at."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from app.cli import stage_change, stage_resweep
from app.cli.arguments import limit_option
from app.cli.modules import application
from app.cli.output import (
    counted,
    document,
    first_line,
    heading,
    json_option,
    resting,
    several,
    table,
    told_of_more,
    when,
)
from app.cli.stage_words import ANY_ID, as_declared, id_argument, kind_argument, limits, shown_id, stage_argument
from app.db import transaction
from app.errors import SettingsError
from stages import listing, lookup, parked, state_text
from stages.listing import Listed, State, Visit, Working
from stages.parked import Selection


@click.group()
def stage() -> None:
    """Looks at stages, which change entities, and steers them.

    STAGE is kind.stage, or the name alone if one kind has such a stage; kind.system asks all stages of the kind. ID is
    the text of an id; the parts of a composite one are joined by a slash. None of this needs the code of the stages.
    """


for command in (*stage_change.COMMANDS, stage_resweep.walk):
    stage.add_command(command)


@stage.command("list")
@click.option("--kind", help="Stages of this kind.")
@json_option
def list_(*, kind: str | None, as_json: bool) -> None:
    """Lists stages with what waits, runs and is parked.

    'low' is what waits in the low lane, that of resweeps. 'oldest' is how long the first ready visit has waited.

    \b
    Examples:
      tidemill stage list
      tidemill stage list --kind offer --json | jq '.stages[] | select(.depth.parked > 0)'
    """
    with transaction() as session:
        wanted = None if kind is None else lookup.kind(session, kind)
        found = listing.stages(session, wanted)
    if as_json:
        document({"stages": [asdict(each) for each in found]})
        return
    table(
        ("stage", "ready", "later", "low", "running", "parked", "oldest", "slots", "asks failed", "limits"),
        [_row(each) for each in found],
        empty="no stage is known: run 'tidemill migrate' with TIDEMILL_MODULES",
    )
    for each in found:
        _remark(each)


def _row(each: Listed) -> tuple[object, ...]:
    deep = each.depth
    return (
        *(f"{each.kind}.{each.name}", counted(deep.ready), counted(deep.later)),
        *(counted(deep.low_ready + deep.low_later), deep.running, counted(deep.parked), deep.oldest),
        *(each.slots, each.ask_failures or None, limits(each)),
    )


def _remark(each: Listed) -> None:
    name = f"{each.kind}.{each.name}"
    if each.removed_at is not None:
        click.secho(f"! {name} is not declared any more; what is left of it is not visited", fg="yellow")
    elif (rests := resting(each.rests_why, each.rests_until)) is not None:
        click.secho(f"! {name}: {rests}", fg="yellow")
    elif each.depth.ready and not each.slots and not each.paused:
        click.secho(f"! {name}: {counted(each.depth.ready)} are ready and no live worker takes them", fg="red")
    if each.ask_failure is not None:
        why = first_line(each.ask_failure)
        click.secho(f"! should_process of {name} failed {each.ask_failures} times, the last: {why}", fg="yellow")
    if (command := as_declared(each)) is not None:
        click.echo(f"{name} has other limits than the code declares; to go back to them: {command}")


@stage.command()
@stage_argument
@click.option("--low", is_flag=True, help="The low lane, that of resweeps.")
@click.option("--ready", "ready_only", is_flag=True, help="Only what may be visited now.")
@limit_option(100)
@json_option
def peek(*, stage: str, low: bool, ready_only: bool, limit: int, as_json: bool) -> None:
    """Shows what waits in the queue of a stage.

    The earliest first, timers included. Takes nothing.

    \b
    Examples:
      tidemill stage peek offer.predict
      tidemill stage peek predict --ready --limit 10 --json
    """
    with transaction() as session:
        known = lookup.stage(session, stage)
        found = listing.waiting(session, known, limit, low=low, ready_only=ready_only)
    if as_json:
        document({"kind": known.kind, "stage": known.name, "low": low, "waiting": [asdict(each) for each in found]})
    else:
        table(
            ("id", "visit time", "attempts", "hops", "error"),
            [(w.entity_id, w.visit_time, w.attempts or None, w.hops or None, first_line(w.error)) for w in found],
            empty=f"nothing waits in {'the low lane of ' if low else ''}{known}",
        )
    told_of_more(found, limit)


@stage.command(context_settings=ANY_ID)
@kind_argument
@id_argument
@json_option
def check(*, kind: str, entity_id: str, as_json: bool) -> None:
    """Shows where an entity is: queues, failures, who works on it.

    With the last traceback of each stage that failed at it, and which stages keep a state beside it.

    \b
    Examples:
      tidemill stage check offer 17
      tidemill stage check order_line 'A-1/3' --json
    """
    with transaction() as session:
        name = lookup.kind(session, kind)
        text = lookup.entity(name, entity_id)
        visits = listing.visits_of(session, name, text)
        working = listing.working_on(session, name, text)
        states = listing.states_of(session, name, text)
    if as_json:
        document(
            {
                "kind": name,
                "id": text,
                "visits": [asdict(each) for each in visits],
                "working": [asdict(each) for each in working],
                "states": [_described(each) for each in states],
            }
        )
        return
    _show_visits(visits, f"{name} {shown_id(text)} is in the queue of no stage")
    for each in working:
        click.echo(_works(each))
    if states:
        click.echo("states: " + ", ".join(f"{s.stage} (version {s.stored.version})" for s in states))
    for visit in visits:
        if visit.traceback:
            heading(f"Traceback of {visit.stage}")
            click.echo(visit.traceback.rstrip())


def _show_visits(visits: list[Visit], empty: str) -> None:
    table(
        ("stage", "state", "visit time", "again", "attempts", "hops", "error"),
        [
            (v.stage, v.state, _lane(v), _again(v), v.attempts or None, v.hops or None, first_line(v.error))
            for v in visits
        ],
        empty=empty,
    )
    for visit in visits:
        if visit.chain is not None and visit.hops > 1:
            click.echo(f"{visit.stage}: {visit.hops} visits led here without a pause: {visit.chain}")


def _lane(visit: Visit) -> str | None:
    if visit.visit_time is None:
        return None
    return when(visit.visit_time) + (" low" if visit.due_at is None else "")


def _again(visit: Visit) -> datetime | None:
    return visit.again_at or visit.again_low_at


def _works(each: Working) -> str:
    by = f"worker {each.worker}" if each.worker is not None else "a worker"
    since = "" if each.since is None else f" since {when(each.since)}"
    if each.live:
        return f"{by} works on it for {each.stage}{since}; it is due to report by {when(each.until)}"
    return (
        f"{by} worked on it for {each.stage}{since}, and has not reported since {when(each.until)}: others may take it"
    )


@stage.command(context_settings=ANY_ID)
@kind_argument
@id_argument
@json_option
def states(*, kind: str, entity_id: str, as_json: bool) -> None:
    """Shows what stages keep beside an entity.

    As text where it is JSON, or the class of the message is in TIDEMILL_MODULES; else its first bytes.

    \b
    Example:
      TIDEMILL_MODULES=shop.stages tidemill stage states offer 17
    """
    try:
        application()
    except SettingsError as error:
        click.echo(f"Note: {error}; states are shown without their text", err=True)
    with transaction() as session:
        name = lookup.kind(session, kind)
        text = lookup.entity(name, entity_id)
        found = listing.states_of(session, name, text)
    if as_json:
        told = [_described(each) | {"state": state_text.data_of(each.stored)} for each in found]
        document({"kind": name, "id": text, "states": told})
        return
    table(
        ("stage", "type", "version", "bytes", "changed", "state"),
        [
            (
                s.stage,
                s.stored.type_url.rpartition("/")[2],
                s.stored.version,
                len(s.stored.value),
                s.changed_at,
                _text(s),
            )
            for s in found
        ],
        empty=f"no stage keeps a state beside {name} {shown_id(text)}",
    )


def _type(state: State) -> str:
    return state.stored.type_url.rpartition("/")[2]


def _text(state: State) -> str:
    return state_text.text_of(state.stored) or "(empty)"


def _described(state: State) -> dict[str, Any]:
    stored = state.stored
    words = {"stage": state.stage, "type_url": stored.type_url, "version": stored.version, "bytes": len(stored.value)}
    return words | {"changed_at": state.changed_at}


@stage.command("parked")
@click.argument("stage", metavar="[STAGE]", required=False)
@click.option("--error", help="Whose error has this text in it.")
@click.option("--group", help="Of this group of errors.")
@limit_option(20)
@json_option
def parked_(*, stage: str | None, error: str | None, group: str | None, limit: int, as_json: bool) -> None:
    """Shows what failed too often, grouped by its error.

    Errors that differ only in ids, numbers and quoted text are one group. Below, the latest visits.

    \b
    Examples:
      tidemill stage parked
      tidemill stage parked offer.predict --error timeout --json
    """
    with transaction() as session:
        of = None if stage is None else (lookup.stage(session, stage),)
        selection = Selection(of, error=error, group=group)
        groups = parked.groups(session, selection, limit)
        found = parked.latest(session, selection, limit)
    if as_json:
        document({"groups": [asdict(each) for each in groups], "visits": [asdict(each) for each in found]})
        return
    if not found:
        click.echo("nothing of the kind is parked" if selection != Selection() else "nothing is parked")
        return
    table(
        ("group", "stage", "visits", "first", "last", "for example", "error"),
        [
            (g.name, f"{g.kind}.{g.stage}", counted(g.count), g.first_at, g.last_at, g.entity_id, first_line(g.error))
            for g in groups
        ],
    )
    heading(f"The latest {several(len(found), 'visit')}" if len(found) > 1 else "The visit")
    table(
        ("stage", "id", "group", "failed", "attempts", "asked again", "error"),
        [
            (f"{p.kind}.{p.stage}", p.entity_id, p.group, p.failed_at, p.attempts, p.asked_again, first_line(p.error))
            for p in found
        ],
    )
    click.echo("\nWith its traceback: tidemill stage check KIND ID; once more: tidemill stage redrive --group GROUP")
    told_of_more(found, limit)
