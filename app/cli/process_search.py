"""`tidemill process search`: by everything that is known of processes, and by what was saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import click

from app.cli.arguments import Past, limit_option, options
from app.cli.output import document, json_option, table
from app.cli.process_words import Pair, once
from app.db import transaction
from processes import finding, templates
from processes.filters import Filters, parameters_of, read
from processes.finding import MOST, Found
from processes.states import ProcessState
from processes.wording import clean


class PastWords(click.ParamType[str]):
    """A time as it is written, also with a parameter of a template in it."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not parameters_of({"": str(value)}):
            Past().convert(value, param, ctx)
        return str(value)


def _between(what: str, since: str, until: str) -> tuple[Any, ...]:
    return (
        click.option(since, type=PastWords(), help=f"{what} at this time or later: 2h, or 2026-07-01T12:00:00Z."),
        click.option(until, type=PastWords(), help=f"{what} before this time."),
    )


#: What processes are selected by, by the names of `processes.filters.Filters`.
filter_options = options(
    click.option(
        *("--state", "states"),
        type=click.Choice(ProcessState, case_sensitive=False),
        multiple=True,
        help="In this state; may be repeated.",
    ),
    click.option("--type", "name", metavar="NAME", help="Began with this decider."),
    click.option("--actor", metavar="NAME", help="A task of this actor is broken, waits or is in work."),
    click.option("--id", "custom_id", metavar="TEXT", help="Was started with this --id."),
    click.option("--id-prefix", "custom_id_prefix", metavar="TEXT", help="Was started with an --id that begins so."),
    click.option("--key", "idempotency_key", metavar="TEXT", help="Was started with this --key."),
    click.option("--attribute", "attributes", type=Pair(), multiple=True, help="Has this attribute; may be repeated."),
    click.option("--error-class", metavar="CLASS", help="A task broke with an error of this class."),
    click.option("--fingerprint", metavar="TEXT", help="A task broke so: see 'tidemill process errors'."),
    click.option("--text", metavar="WORDS", help="Has these words in its error, or in that of a broken task."),
    *_between("Registered", "--since", "--until"),
    *_between("Begun", "--begun-since", "--begun-until"),
    *_between("Ended", "--ended-since", "--ended-until"),
    *_between("A task broke", "--broken-since", "--broken-until"),
)
template_options = options(
    click.option("--template", metavar="NAME", help="What was saved under this name, and what is given here."),
    click.option("--set", "parameters", type=Pair(), multiple=True, help="A parameter of the template; repeatable."),
)


def words_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was written for `filter_options`, and nothing of what was not."""
    words = {word: value for word, value in given.items() if value not in (None, ())}
    if "states" in words:
        words["states"] = [each.value for each in words["states"]]
    if "attributes" in words:
        words["attributes"] = once(words["attributes"], "the attribute")
    return words


def filters_of(words: Mapping[str, Any], template: str | None, parameters: tuple[tuple[str, str], ...]) -> Filters:
    if template is None:
        if parameters:
            raise click.UsageError("--set is for the parameters of a --template.")
        return read(words, datetime.now(UTC))
    given = once(parameters, "the parameter")
    with transaction() as session:
        return replace(templates.filters(session, template, given), **_given(words))


def _given(words: Mapping[str, Any]) -> dict[str, Any]:
    filters = read(words, datetime.now(UTC))
    return {word: getattr(filters, word) for word in words}


@click.command()
@filter_options
@template_options
@click.option("--save", metavar="NAME", help="Save this as a template, and do not search; {shop} is a parameter.")
@click.option("--before", "before_id", metavar="ID", type=click.IntRange(1, 2**63 - 1), help="Older than this one.")
@limit_option(50, MOST)
@json_option
def search(
    *,
    template: str | None,
    parameters: tuple[tuple[str, str], ...],
    save: str | None,
    before_id: int | None,
    limit: int,
    as_json: bool,
    **given: Any,
) -> None:
    """Finds processes, the newest first.

    All that is given must hold; what is asked of errors and the actor, of one and the same broken task. With --save,
    it is kept as a template instead: {name} in a value is a parameter, {{ a brace.

    \b
    Examples:
      tidemill process search --state broken --type fulfil
      tidemill process search --actor charge --text 'no answer' --since 2h --json
      tidemill process search --state broken --attribute shop={shop} --save broken-of-shop
      tidemill process search --template broken-of-shop --set shop=7
    """
    words = words_of(given)
    if save is not None:
        if template is not None or before_id is not None:
            raise click.UsageError("--save keeps what is given here: without --template and --before.")
        _save(save, words)
        return
    filters = filters_of(words, template, parameters)
    with transaction() as session:
        found = finding.found(session, replace(filters, before_id=before_id), limit)
    last = found[-1].id if len(found) == limit else None
    if as_json:
        document({"processes": [asdict(each) for each in found], "before_id": last})
        return
    table(
        ("id", "type", "state", "custom id", "registered", "took", "left", "error"),
        [_row(each) for each in found],
        empty="there is no such process",
    )
    if last is not None:
        click.echo(f"({limit} are shown; --before {last} shows older ones)", err=True)


def _save(name: str, words: dict[str, Any]) -> None:
    if not words:
        raise click.UsageError("--save keeps what is searched for, and nothing is given.")
    with transaction() as session:
        replaced = templates.save(session, name, words)
    wanted = parameters_of(words)
    needs = f"; it needs {' '.join(f'--set {each}=…' for each in wanted)}" if wanted else ""
    click.echo(f"template {name} is {'replaced' if replaced else 'saved'}{needs}")


def _row(found: Found) -> tuple[object, ...]:
    took = None if found.begun_at is None or found.ended_at is None else found.ended_at - found.begun_at
    left = found.unfinished and (f"{found.unfinished}" + (f", {found.broken} broken" if found.broken else ""))
    custom_id, error = (None if each is None else clean(each) for each in (found.custom_id, found.error))
    return found.id, clean(found.name), found.state, custom_id, found.registered_at, took, left, error
