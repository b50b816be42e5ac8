"""What is said of operations and their items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from app.cli import following
from app.cli.arguments import NONE
from app.cli.output import span, when
from app.clock import Rate
from processes.wording import clean
from recovery import operations
from recovery.operations import ItemShown, OperationState, Progress, Sample


def selected(found: Progress) -> str:
    """What it is over, in a few words."""
    if found.retry_of is not None:
        return f"failed of {found.retry_of}"
    return ", ".join(f"{word}={_value(value)}" for word, value in found.selection.items()) or "everything"


def _value(value: Any) -> str:
    return clean(",".join(map(str, value)) if isinstance(value, list) else str(value), 100)


def item_words(item: ItemShown | Sample) -> str:
    if item.process_id is None:
        return clean(" ".join(item.subject or ()), 200)
    return f"process {item.process_id}" + ("" if item.number is None else f", task {item.number}")


def told(found: Progress) -> Iterator[str]:
    rate = "as fast as it goes" if found.rate is None else str(Rate(found.rate))
    parameters = ", ".join(f"{word} {value}" for word, value in found.parameters.items())
    yield f"operation {found.id}  {found.kind}  {found.state}"
    lines = {
        "over": selected(found),
        "from": parameters or None,
        "reason": found.reason and clean(found.reason),
        "paused itself": found.why,
        "items": f"{found.ended} of {found.total} ({found.percent:.1f}%)",
        "done": found.done,
        "failed": found.failed or None,
        "skipped": found.skipped or None,
        "rate": rate + ("" if found.rate_so_far is None else f", {found.rate_so_far:.1f}/s so far"),
        "left": found.left and span(found.left),
        "priority": found.priority or None,
        "created": f"{when(found.created_at)} by {found.created_by}",
        "ended": found.ended_at and when(found.ended_at),
    }
    yield from (f"  {word:14} {value}" for word, value in lines.items() if value is not None)


def inquire(operation_id: int) -> Progress:
    """Before something is changed."""
    found = operations.show(operation_id)
    click.echo(
        f"operation {found.id}, {found.kind} over {selected(found)}, is {found.state}: "
        f"{found.ended} of {found.total}, {found.failed} failed"
    )
    return found


def rate_words(rate: str | None) -> str | None:
    """As the functions take it."""
    return None if rate == NONE else rate


def follow(operation_id: int) -> None:
    """Until it has ended or stands still."""
    found = following.follow(
        "items",
        lambda: operations.show(operation_id),
        lambda each: each.ended,
        lambda each: each.state is OperationState.RUNNING,
    )
    if found.state is OperationState.RUNNING:
        click.echo(f"operation {operation_id} goes on: tidemill recover operation show {operation_id}")
        click.get_current_context().exit(130)
    took = "" if found.ended_at is None else f" in {span(found.ended_at - found.created_at)}"
    why = "" if found.why is None else f", it paused itself: {found.why}"
    counts = f"{found.done} done, {found.failed} failed, {found.skipped} skipped"
    click.echo(f"operation {operation_id} is {found.state}{took}: {counts}{why}")
    if found.state is not OperationState.DONE or found.failed:
        click.get_current_context().exit(1)
