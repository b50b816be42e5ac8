"""`tidemill token`: who may do what from outside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from app import audit, tokens
from app.cli.arguments import Span
from app.cli.output import document, json_option, table, when
from app.db import transaction
from app.tokens import ROLES, Token

NEVER = "never"


class Lifetime(Span):
    name = "SPAN|never"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return NEVER if value == NEVER else super().convert(value, param, ctx)


@click.group()
def token() -> None:
    """Makes, lists and revokes the tokens of callers."""


@token.command()
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What its holder may do.")
@click.option("--scope", "scopes", multiple=True, metavar="NAME", help="Only for this name; repeatable; * at its end.")
@click.option("--expires", type=Lifetime(), default="90d", show_default=True, help="How long it is valid, or 'never'.")
def create(*, name: str, role: str, scopes: tuple[str, ...], expires: Any) -> None:
    """Makes a token, and prints it: once, and alone on stdout.

    A viewer reads all but states. An operator may do everything. A producer advances entities and puts work into
    queues, an actor reads and updates the states of stages: of all, or of those that --scope names.

    \b
    Examples:
      tidemill token create dashboards --role viewer --expires never
      tidemill token create loader --role producer --scope "dds.*" > loader.token
      tidemill token create scoring --role actor --scope offer.score --expires 30d
    """
    lifetime: timedelta | None = None if expires == NEVER else expires
    with transaction() as session:
        text = tokens.create(session, name, role, scopes or None, lifetime, audit.actor())
        made = session.get_one(Token, name)
        until = made.expires_at
        audit.record(session, "token.create", name, role=role, scope=made.scope, expires_at=until and until.isoformat())
    words = "for ever" if until is None else f"until {when(until)}"
    scope = f" of {', '.join(made.scope)}" if made.scope else ""
    click.echo(f"token {name}: {role}{scope}, valid {words}; it is shown this once:", err=True)
    click.echo(text)


@token.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """Lists tokens, without what only their holders know.

    \b
    Example:
      tidemill token list
    """
    with transaction() as session:
        found = tokens.listed(session)
    if as_json:
        document({"tokens": [_as_data(each) for each in found]})
        return
    table(
        ("name", "role", "scope", "state", "expires", "made", "by"),
        [
            (
                each.name,
                each.role,
                "all" if each.scope is None else " ".join(each.scope),
                state(each),
                each.expires_at or NEVER,
                each.created_at,
                each.created_by,
            )
            for each in found
        ],
        empty="there are no tokens: make one with 'tidemill token create'",
    )


def _as_data(each: Token) -> dict[str, Any]:
    names = ("name", "role", "scope", "created_at", "expires_at", "revoked_at", "created_by")
    return {name: getattr(each, name) for name in names} | {"state": state(each)}


def state(each: Token) -> str:
    if each.revoked_at is not None:
        return "revoked"
    return "expired" if each.expires_at is not None and each.expires_at <= datetime.now(UTC) else "valid"


@token.command()
@click.argument("name")
def revoke(*, name: str) -> None:
    """Revokes a token for good.

    Servers let it in for 2 s more at most.

    \b
    Example:
      tidemill token revoke loader
    """
    with transaction() as session:
        new = tokens.revoke(session, name)
        if new:
            audit.record(session, "token.revoke", name)
    click.echo(f"token {name} is revoked" if new else f"token {name} was revoked already")
