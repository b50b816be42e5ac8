"""`tidemill recover known`: errors that somebody knows, and what is to be done about them."""

from __future__ import annotations

from dataclasses import asdict

import click

from app.cli.output import agree, document, json_option, table, yes_option
from app.db import transaction
from processes.wording import clean
from recovery import known as rules
from recovery.rules import Action, Rule


@click.group()
def known() -> None:
    """Errors that somebody knows: what they mean, and what is proposed."""


@known.command()
@click.argument("name")
@click.option("--actor", metavar="NAME", help="Of a task of this actor.")
@click.option("--error-class", "type_", metavar="CLASS", help="Of this class.")
@click.option("--fingerprint", metavar="TEXT", help="Of this fingerprint: see 'tidemill process errors'.")
@click.option("--text", metavar="TEXT", help="With this in class or message, in small or capital letters.")
@click.option("--says", metavar="TEXT", required=True, help="What people are told.")
@click.option(
    "--proposes", type=click.Choice([each.value for each in Action]), required=True, help="What is to be done."
)
@click.option("--reason", metavar="TEXT", help="The --reason of what is proposed.")
@json_option
def add(
    *,
    name: str,
    actor: str | None,
    type_: str | None,
    fingerprint: str | None,
    text: str | None,
    says: str,
    proposes: str,
    reason: str | None,
    as_json: bool,
) -> None:
    """Adds a known error.

    All that is given must hold of a broken task; something must be. Where several match, the one that names the
    fingerprint is told, else the one that asks for more. Nothing is done by itself: it is proposed by 'process errors'
    and 'process show', with the command to run.

    \b
    Examples:
      tidemill recover known add bank-down --actor charge --text 503 --says 'the bank was down' --proposes restart-task
      tidemill recover known add no-such-order --error-class KeyError --says 'deleted in the shop' --proposes abort
    """
    parameters = {} if reason is None else {"reason": reason}
    rule = Rule(name, says, Action(proposes), actor, type_, fingerprint, text, parameters)
    with transaction() as session:
        rules.add(session, rule)
    if as_json:
        document(asdict(rule))
    else:
        click.echo(f"{name} is known: {clean(says)}, proposed: {proposes}")


@known.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """Lists known errors.

    \b
    Example:
      tidemill recover known list
    """
    with transaction() as session:
        found = rules.listed(session)
    if as_json:
        document({"known": [asdict(each) for each in found]})
        return
    table(
        ("name", "actor", "error", "fingerprint", "text", "proposes", "says"),
        [
            (each.name, each.actor, each.type, each.fingerprint, each.text, each.proposes.value, each.says)
            for each in found
        ],
        empty="there are no known errors: 'tidemill recover known add' adds one",
    )


@known.command()
@click.argument("name")
@yes_option
def remove(*, name: str, yes: bool) -> None:
    """Removes a known error.

    \b
    Example:
      tidemill recover known remove bank-down
    """
    agree(f"Remove the known error {name}?", yes=yes)
    with transaction() as session:
        rules.remove(session, name)
    click.echo(f"{name} is not known any more")
