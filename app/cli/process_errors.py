"""`tidemill process errors`: what is broken, by kind."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from app.cli.arguments import Past
from app.cli.known_words import data_of_all, told_of_all
from app.cli.output import document, json_option, table
from app.db import transaction
from processes.errors import MOST, Group, groups
from processes.wording import clean
from recovery import known
from recovery.rules import Broken, Rule
from recovery.rules import known as first_known


@click.command()
@click.option("--since", type=Past(), help="What broke at this time or later: 2h, or 2026-07-01T12:00:00Z.")
@click.option("--type", "name", metavar="NAME", help="Of processes that began with this decider.")
@click.option("--actor", metavar="NAME", help="Tasks of this actor.")
@click.option("--limit", type=click.IntRange(1, MOST), default=20, show_default=True, help="At most so many groups.")
@json_option
def errors(*, since: datetime | None, name: str | None, actor: str | None, limit: int, as_json: bool) -> None:
    """Lists what is broken, by kind, the most frequent first.

    Errors of an actor are the same if they differ in ids, numbers and quoted text only. What 'tidemill recover known'
    knows of them stands below, with what to run for the latest task of the group, and for all of them.

    \b
    Examples:
      tidemill process errors --since 2h
      tidemill process search --fingerprint 0f3c9a1d5b7e2468
    """
    with transaction() as session:
        found = groups(session, since=since, name=name, actor=actor, limit=limit)
        rules = known.listed(session)
    held = [(each, _broken(each)) for each in found]
    narrowed = [] if name is None else ["--type", name]
    narrowed += [] if since is None else ["--broken-since", since.isoformat()]
    if as_json:
        document({"errors": [_data(group, broken, rules, narrowed) for group, broken in held]})
        return
    table(
        ("fingerprint", "count", "actor", "first", "last", "latest", "error"),
        [_row(each) for each in found],
        empty="nothing is broken",
    )
    for group, broken in held:
        if (rule := first_known(rules, broken)) is not None:
            words = told_of_all(rule, broken, group.count, narrowed)
            click.secho(f"! {group.fingerprint}: {words}", fg="yellow")


def _broken(group: Group) -> Broken:
    example = group.example
    of = (group.actor, group.type, example.message, group.fingerprint)
    return Broken(example.process_id, example.number, *of)


def _data(group: Group, broken: Broken, rules: list[Rule], narrowed: list[str]) -> dict[str, Any]:
    return asdict(group) | {"known": data_of_all(first_known(rules, broken), broken, narrowed)}


def _row(group: Group) -> tuple[object, ...]:
    example = group.example
    error = clean(f"{group.type}: {example.message}" if example.message else group.type, 100)
    latest = f"{example.process_id} task {example.number}"
    return group.fingerprint, group.count, clean(group.actor, 100), group.first_at, group.last_at, latest, error
