"""`tidemill process templates`: searches that were saved."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import click

from app.cli.output import agree, document, json_option, table, when, yes_option
from app.cli.process_search import search
from app.db import transaction
from processes import templates as saved
from processes.templates import Template
from processes.wording import clean


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def templates(ctx: click.Context, *, as_json: bool) -> None:
    """Lists, shows and removes searches that were saved.

    'tidemill process search --save NAME' saves one.

    \b
    Examples:
      tidemill process templates
      tidemill process templates show broken-of-shop
    """
    if ctx.invoked_subcommand is None:
        _list(as_json=as_json)


@templates.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """Lists templates with their parameters."""
    _list(as_json=as_json)


def _list(*, as_json: bool) -> None:
    with transaction() as session:
        found = saved.listed(session)
    if as_json:
        document({"templates": [_data(each) for each in found]})
        return
    table(
        ("name", "parameters", "searches for", "saved", "by"),
        [
            (each.name, " ".join(each.parameters) or None, clean(written(each.filters)), each.at, each.created_by)
            for each in found
        ],
        empty="there are no templates: 'tidemill process search … --save NAME' saves one",
    )


def _data(template: Template) -> dict[str, Any]:
    names = ("name", "parameters", "filters", "created_by", "at")
    return {name: getattr(template, name) for name in names}


def written(words: Mapping[str, Any]) -> str:
    """As they would be typed for `process search`."""
    options = {each.name: each.opts[0] for each in search.params}
    return " ".join(f"{options.get(word, word)} {shlex.quote(text)}" for word, text in _each(words))


def _each(words: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for word, value in words.items():
        match value:
            case Mapping():
                yield from ((word, f"{name}={each}") for name, each in value.items())
            case list():
                yield from ((word, str(each).lower()) for each in value)
            case _:
                yield word, str(value)


@templates.command()
@click.argument("name")
@json_option
def show(*, name: str, as_json: bool) -> None:
    """Shows a template, and the command that uses it.

    \b
    Example:
      tidemill process templates show broken-of-shop
    """
    with transaction() as session:
        found = saved.get(session, name)
    if as_json:
        document(_data(found))
        return
    settings = "".join(f" --set {each}=…" for each in found.parameters)
    for word, value in (
        ("template", found.name),
        ("searches for", clean(written(found.filters), 2_000)),
        ("saved", f"{when(found.at)} by {clean(found.created_by)}"),
        ("use it with", f"tidemill process search --template {shlex.quote(found.name)}{settings}"),
    ):
        click.echo(f"{word:14} {value}")


@templates.command()
@click.argument("name")
@yes_option
def remove(*, name: str, yes: bool) -> None:
    """Removes a template.

    \b
    Example:
      tidemill process templates remove broken-of-shop
    """
    with transaction() as session:
        saved.get(session, name)
    agree(f"Remove the template {name}?", yes=yes)
    with transaction() as session:
        saved.remove(session, name)
    click.echo(f"template {name} is removed")
