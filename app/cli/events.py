"""`tidemill events`: what is published, to whom, and how far that has got."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from app import audit, outbox
from app.cli.arguments import Past, limit_option
from app.cli.output import agree, document, json_option, several, table, told_of_more, when, yes_option
from app.db import transaction
from app.events import Event, Subscriber, subscribe
from app.events.subscriptions import delete_queues, forget, restored
from app.health.events import failing, told
from app.outbox import listing
from app.outbox.replay import first_since, preview

SHOWN = 50


@click.group()
def events() -> None:
    """Shows and directs what is published of what stages save.

    \b
    Examples:
      tidemill events status
      tidemill events tail 'offer.*'
      tidemill events replay --since 2h
    """


@events.command()
@json_option
def status(*, as_json: bool) -> None:
    """Shows how far events are published."""
    with transaction() as session:
        lag = listing.lag(session)
    if as_json:
        document(asdict(lag))
        return
    if not lag.started:
        click.echo("no relay has ever run here: a scheduler publishes events, or beat with a worker of its queue")
    click.echo(f"{told(lag)}; {lag.published} published so far, {several(lag.subscriptions, 'subscription')}")
    click.echo("what nobody would get is passed over, and not counted as published")
    if lag.moved_at is not None:
        click.echo(f"last moved {when(lag.moved_at)}")
    if lag.replaying:
        click.echo(f"published again just now: up to {several(lag.replaying, 'event')}")
    if lag.error is not None:
        click.secho(f"! {lag.error}{failing(lag)}", fg="red")


@events.command("list")
@click.option("--kind", metavar="KIND", help="Of this kind.")
@click.option("--stage", metavar="STAGE", help="Saved by this stage.")
@click.option("--entity", "entity_id", metavar="ID", help="Of this entity.")
@click.option("--since", type=Past(), help="Since an ISO time, or for a span such as 2h.")
@limit_option(SHOWN)
@json_option
def list_(
    *, kind: str | None, stage: str | None, entity_id: str | None, since: datetime | None, limit: int, as_json: bool
) -> None:
    """Lists recent events, the newest first.

    RELAYED are those that were published, and those that were passed over because nobody would have got them.
    """
    with transaction() as session:
        first = None if since is None else first_since(session, since)
        found = listing.recent(session, kind=kind, stage=stage, entity_id=entity_id, since_id=first, limit=limit)
        if since is not None:
            found = [each for each in found if first is not None and each.saved_at >= since]
    if as_json:
        document({"events": [asdict(each) for each in found]})
        return
    headers = ("sequence", "kind", "id", "stage", "version", "changed", "saved", "relayed")
    rows = [
        (e.sequence, e.kind, e.id, e.stage, e.version, ", ".join(e.fields) or "state", e.saved_at, e.relayed)
        for e in found
    ]
    table(headers, rows, empty="there are no such events")
    told_of_more(found, limit)


@events.command()
@click.option("--since", type=Past(), required=True, help="From an ISO time on, or for a span such as 2h.")
@yes_option
def replay(*, since: datetime, yes: bool) -> None:
    """Publishes again what was published since a moment.

    For subscribers that have lost what they had. Those that dedup by the sequence see nothing twice.
    """
    with transaction() as session:
        count = preview(session, since)
    if not count:
        click.echo(f"there is no event since {since.astimezone(UTC):%Y-%m-%d %H:%M:%S}")
        return
    agree(f"Publish up to {several(count, 'event')} again, before anything new?", yes=yes)
    with transaction() as session:
        first = outbox.replay(since, session)
        audit.record(session, "event.replay", "events", since=since.isoformat())
    click.echo(f"{several(count, 'event')} from sequence {first} on, as far as they were published, come again")


@events.command("restored")
@yes_option
def restored_(*, yes: bool) -> None:
    """Says that the database is a restored backup.

    To be called before anything is started, by the role that migrates. What is saved from now on gets sequences that
    nobody has seen; otherwise subscribers would take it for what they had. The queues of subscriptions are emptied, as
    they may hold saves that are lost. The relay makes them again, and publishes again what it last published before the
    backup (TIDEMILL_EVENTS_REPLAY).
    """
    agree("Raise the sequence of events, and delete what waits for subscribers in the broker?", yes=yes)
    with transaction() as session:
        first, names = restored(session)
        audit.record(session, "event.restored", "events", sequence=first)
    if not delete_queues(names, mark=True):
        raise click.ClickException("the broker is away: empty it before anything is started, or call this once more")
    click.echo(f"events are numbered from {first} on; the queues of {several(len(names), 'subscription')} are empty")


@events.command("subscribe")
@click.argument("name")
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
def subscribe_(*, name: str, patterns: tuple[str, ...]) -> None:
    """Keeps events for a subscriber, from now on.

    A PATTERN is `<kind>.<stage>`, where `*` stands for any word and `#` for all that follow.

    \b
    Examples:
      tidemill events subscribe mail 'offer.expire' 'order.*'
    """
    with transaction() as session:
        subscribe(name, *patterns, session=session)
        audit.record(session, "event.subscribe", name, patterns=list(patterns))
    click.echo(f"{name} gets {', '.join(patterns)} from now on")


@events.command("unsubscribe")
@click.argument("name")
@yes_option
def unsubscribe_(*, name: str, yes: bool) -> None:
    """Ends a subscription, and deletes its queue with what is in it."""
    agree(f"End the subscription {name}, and delete what waits for it?", yes=yes)
    with transaction() as session:
        forget(session, name)
        audit.record(session, "event.unsubscribe", name)
    gone = delete_queues([name])
    click.echo(f"{name} gets nothing more" + ("" if gone else "; the broker is away: the relay deletes its queue"))


@events.command()
@json_option
def subscriptions(*, as_json: bool) -> None:
    """Lists who gets what."""
    with transaction() as session:
        found = listing.subscriptions(session)
    if as_json:
        document({"subscriptions": [asdict(each) for each in found]})
        return
    rows = [(each.name, " ".join(each.patterns), each.created_at) for each in found]
    table(("name", "patterns", "since"), rows, empty="nobody is subscribed: tidemill events subscribe NAME PATTERN")


@events.command()
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@click.option("--count", type=click.IntRange(min=1), help="End after so many.")
@click.option("--seconds", type=click.FloatRange(min=0), help="End after so long without one.")
@json_option
def tail(*, patterns: tuple[str, ...], count: int | None, seconds: float | None, as_json: bool) -> None:
    """Shows events as they are published, until Ctrl-C. With --json, one document a line."""
    with Subscriber.passing(*(patterns or ("#",)), timeout=seconds) as subscriber:
        for number, event in enumerate(subscriber, 1):
            click.echo(json.dumps(_as_data(event), ensure_ascii=False) if as_json else _line(event))
            if number == count:
                return


def _as_data(event: Event) -> dict[str, Any]:
    return {
        "sequence": event.sequence,
        "kind": event.kind,
        "id": event.id,
        "stage": event.stage,
        "version": event.version,
        "fields": list(event.fields),
        "entity": event.entity,
        "state_version": event.state_version,
        "saved_at": event.saved_at.astimezone(UTC).isoformat(),
    }


def _line(event: Event) -> str:
    changed = ", ".join(event.fields) or "state"
    return (
        f"{event.saved_at.astimezone(UTC):%H:%M:%S.%f}  {event.sequence}  {event.kind}.{event.stage}  {event.id}  "
        f"version {event.version}  {changed}"
    )
