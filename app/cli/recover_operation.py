"""`tidemill recover operation`: operations listed, shown, paused, resumed, cancelled and tried again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from app.cli.arguments import NONE, RateText, limit_option
from app.cli.operation_start import start
from app.cli.operation_words import follow, inquire, item_words, rate_words, selected, told
from app.cli.output import agree, document, heading, json_option, table, told_of_more, yes_option
from app.clock import Rate
from processes.wording import clean
from recovery import operations
from recovery.operations import ItemState, Progress
from recovery.operations.listing import LISTED_MOST

LISTED, ITEMS = 20, 20

operation_argument: Callable[[Any], Any] = click.argument(
    "operation_id", metavar="ID", type=click.IntRange(1, 2**63 - 1)
)
reason_option: Callable[[Any], Any] = click.option("--reason", metavar="TEXT", help="Why: kept in the audit.")
wait_option: Callable[[Any], Any] = click.option(
    "--wait", is_flag=True, help="Show how far it is until it has ended; Ctrl-C leaves it going."
)
rate_option: Callable[[Any], Any] = click.option(
    "--rate", type=RateText(), help="Items in a time, as in 50/s, or 'none'."
)


@click.group()
def operation() -> None:
    """Does something to many things at once, after a disaster.

    What an operation is over is chosen when it starts. It goes on without this command, over restarts; services do it:
    a scheduler, or beat with a worker of the queue 'control'. It pauses itself when half of what it did last failed, or
    broke again.
    """


operation.add_command(start)


@operation.command(name="list")
@click.option("--live", is_flag=True, help="Only those that have not ended.")
@limit_option(LISTED, LISTED_MOST)
@json_option
def list_(*, live: bool, limit: int, as_json: bool) -> None:
    """Lists operations, the latest first."""
    found = operations.overview(limit, live=live)
    if as_json:
        document({"operations": [_data(each) for each in found]})
        return
    table(
        ("id", "kind", "over", "state", "done", "items", "failed", "skipped", "rate", "left", "created", "by"),
        [_row(each) for each in found],
        empty="there is no operation",
    )
    for each in found:
        if each.why is not None and each.ended_at is None:
            click.secho(f"! operation {each.id} paused itself: {each.why}", fg="yellow")
    told_of_more(found, limit)


def _data(found: Progress) -> dict[str, Any]:
    return asdict(found) | {"percent": found.percent, "left": found.left, "rate_so_far": found.rate_so_far}


def _row(each: Progress) -> tuple[object, ...]:
    rate = NONE if each.rate is None else str(Rate(each.rate))
    return (
        *(each.id, each.kind, selected(each), each.state, f"{each.percent:.1f}%", each.total),
        *(each.failed or None, each.skipped or None, rate, each.left, each.created_at, each.created_by),
    )


@operation.command()
@operation_argument
@click.option("--failed", is_flag=True, help="Every item that failed, with its error.")
@limit_option(ITEMS, LISTED_MOST)
@json_option
def show(*, operation_id: int, failed: bool, limit: int, as_json: bool) -> None:
    """Shows how far an operation is, and what became of its items.

    \b
    Examples:
      tidemill recover operation show 3
      tidemill recover operation show 3 --failed --limit 1000 --json
    """
    found = operations.show(operation_id)
    outcomes = operations.outcomes(operation_id)
    wanted = [ItemState.FAILED] if failed else []
    items = operations.items(operation_id, states=wanted, limit=limit) if failed or as_json else []
    if as_json:
        listed = {"outcomes": [asdict(each) for each in outcomes], "items": [asdict(each) for each in items]}
        document(_data(found) | listed)
        return
    for line in told(found):
        click.echo(line)
    if outcomes:
        heading("Outcomes")
        rows = [(each.state, each.count, clean(each.outcome)) for each in outcomes]
        table(("state", "items", "outcome"), rows)
    if failed:
        heading("Failed")
        table(("item", "error"), [(item_words(each), clean(each.outcome or "")) for each in items], empty="none")
        told_of_more(items, limit)


@operation.command()
@operation_argument
@reason_option
def pause(*, operation_id: int, reason: str | None) -> None:
    """Pauses an operation.

    It ends the batch that it is at, which takes a second at most.
    """
    new = operations.pause(operation_id, reason=reason)
    click.echo(
        f"operation {operation_id} {'is' if new else 'was already'} paused: "
        f"tidemill recover operation resume {operation_id}"
    )


@operation.command()
@operation_argument
@rate_option
@reason_option
@wait_option
def resume(*, operation_id: int, rate: str | None, reason: str | None, wait: bool) -> None:
    """Lets a paused operation go on, or changes the rate.

    \b
    Example:
      tidemill recover operation resume 3 --rate 10/s
    """
    changes: dict[str, Any] = {} if rate is None else {"rate": rate_words(rate)}
    paused = operations.resume(operation_id, reason=reason, **changes)
    if paused or rate is not None:
        click.echo(f"operation {operation_id} goes on" + ("" if rate is None else f", rate {rate}"))
    else:
        click.echo(f"operation {operation_id} was not paused")
    if wait:
        follow(operation_id)


@operation.command()
@operation_argument
@reason_option
@yes_option
def cancel(*, operation_id: int, reason: str | None, yes: bool) -> None:
    """Ends an operation.

    Shows how far it is, and asks. What was done stays done; what waits is left alone.
    """
    inquire(operation_id)
    agree(f"Cancel operation {operation_id}?", yes=yes)
    operations.cancel(operation_id, reason=reason)
    found = operations.show(operation_id)
    click.echo(f"operation {operation_id} is cancelled, {found.total - found.ended} of {found.total} are left alone")


@operation.command()
@operation_argument
@rate_option
@reason_option
@wait_option
@yes_option
def retry(*, operation_id: int, rate: str | None, reason: str | None, wait: bool, yes: bool) -> None:
    """Tries again what has failed, as a new operation.

    \b
    Example:
      tidemill recover operation retry 3 --rate 10/s --wait
    """
    found = inquire(operation_id)
    if found.failed:
        agree(f"Try {found.failed} again?", yes=yes)
    words: dict[str, Any] = {} if rate is None else {"rate": rate_words(rate)}
    made = operations.retry(operation_id, reason=reason, **words)
    click.echo(f"operation {made} tries {found.failed} again: tidemill recover operation show {made}")
    if wait:
        follow(made)
