"""`tidemill simulate`: replays the recorded history with the registered triggers, and with one that is tried."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
from sqlalchemy.orm import Session

from app.cli.arguments import Past, Span
from app.cli.output import document, json_option
from app.cli.simulated import Found, as_data, show
from app.clock import Rate, duration
from app.db import transaction
from app.errors import BadRequest, NotFound
from triggers import instants, lookup
from triggers.definition import checked_trigger
from triggers.instants import Instant, shown, to_datetime, to_instant
from triggers.leaves import FORMAT
from triggers.simulation import Constant, Outcome, Pool, Task, Warehouse, compare, draft, recorded
from triggers.simulation import simulate as run
from triggers.trigger import Trigger, from_json

#: So long a simulation says nothing of how far it is.
QUIET_SECONDS = 1.0


@dataclass(frozen=True)
class Trial:
    """What is tried: tasks in the place of those of the same name, or beside them."""

    tasks: dict[str, Task]
    pools: dict[str, Pool]

    def on(self, warehouse: Warehouse) -> Warehouse:
        tasks = {task.name: task for task in warehouse.tasks} | self.tasks
        limits = {pool.name: pool for pool in warehouse.pools} | self.pools
        return replace(warehouse, tasks=tuple(tasks.values()), pools=tuple(limits.values()))


@dataclass(frozen=True)
class Asked:
    since: datetime
    until: datetime | None
    task: str | None
    trigger: str | None
    module: Path | None
    length: timedelta
    deliver: bool


@click.command()
@click.option("--since", type=Past(), required=True, help="From this time on; a span counts back from now.")
@click.option("--until", type=Past(), help="Until then; now unless given.")
@click.option("--task", help="Tells of this task only; the end of its name will do.")
@click.option("--trigger", metavar="JSON", help="Tries this trigger for the task, in the form of to_json().")
@click.option(
    "--module",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.py",
    help="Tries the tasks and pools that this file declares.",
)
@click.option(
    "--length", type=Span(), default="1min", show_default=True, help="Of runs of tasks that never ended well."
)
@click.option("--deliver", is_flag=True, help="Runs advance what their tasks produce, instead of what was recorded.")
@click.option(
    "--limit", type=click.IntRange(0, 1_000_000), default=20, show_default=True, help="Lists at most so many."
)
@json_option
def simulate(
    *,
    limit: int,
    as_json: bool,
    **words: Any,
) -> None:
    """Simulates when tasks would have started.

    Replays the recorded changes of the control table with the registered triggers. With --trigger or --module it does
    so twice, and tells which launches are added and which are gone. Nothing is started or changed.

    \b
    Examples:
      tidemill simulate --since 1w
      tidemill simulate --since 1w --task build_orders --trigger '{"kind": "delta", "entity": "dds.orders",
        "parameter": "loaded_to", "min_delta_us": 7200000000}'
      tidemill simulate --since 1w --module shop/marts.py
    """
    asked = Asked(**words)
    if asked.trigger is not None and asked.module is not None:
        raise click.UsageError("--trigger and --module cannot go together: write the trigger into the file.")
    if asked.trigger is not None and asked.task is None:
        raise click.UsageError("--trigger wants to know whose it is to be: add --task NAME.")
    found = _simulate(asked)
    if as_json:
        document(as_data(found))
    else:
        show(found, limit)


def _simulate(asked: Asked) -> Found:
    since = asked.since
    tried = None if asked.module is None else draft.read(asked.module)
    with transaction() as session:
        now = recorded.now(session)
        until = asked.until or now
        if until <= since:
            raise click.UsageError(f"--until {until.isoformat()} does not lie after --since {since.isoformat()}.")
        known = recorded.registered(session)
        names = tried.tasks if tried else ()
        name = None if asked.task is None else _named(session, asked.task, known.tasks, names)
        trial = _trial(known.tasks, name, asked.trigger, tried)
        every = [*known.tasks.values(), *(trial.tasks.values() if trial else ())]
        past = recorded.past(session, {each for task in every for each in task.trigger.parameters}, since, until)
    for unreadable in known.unreadable:
        click.echo(f"Note: {unreadable} is left out: its trigger was written by another release", err=True)
    before = Warehouse(tuple(known.tasks.values()), known.pools, current=past.current, seen=past.seen)
    made = {each for task in every for each in task.produces} if asked.deliver else set()
    changes = [change for change in past.changes if change.parameter not in made]
    lengths = Constant(instants.span(asked.length), known.lengths)

    def outcome(warehouse: Warehouse, what: str) -> Outcome:
        return run(
            warehouse,
            changes,
            since=to_instant(since),
            until=to_instant(until),
            lengths=lengths,
            delivers=asked.deliver,
            progress=_progress(what, since, until),
        )

    first = outcome(before, "as registered")
    second = None if trial is None else outcome(trial.on(before), "as tried")
    told = (name,) if name is not None else tuple(trial.tasks) if trial is not None else tuple(known.tasks)
    difference = None if second is None else compare(first, second, told)
    return Found(since, until, len(changes), past.runs, first, second, difference, told)


def _named(session: Session, words: str, known: Collection[str], tried: Collection[str]) -> str:
    """What is tried goes first: it may have the name of a registered task, or a new one."""
    ends = [each for each in tried if each == words or each.endswith(f".{words}")]
    name = ends[0] if len(ends) == 1 else lookup.task(session, words)
    if name not in known and name not in tried:
        raise NotFound(f"the task {name} is not declared any more, or its trigger was written by another release")
    return name


def _trial(known: dict[str, Task], name: str | None, text: str | None, tried: draft.Draft | None) -> Trial | None:
    if text is not None and name is not None:
        task = known[name]
        return Trial({name: replace(task, trigger=_trigger(task, text))}, {})
    if tried is None:
        return None
    tasks = {each: Task.of(made) for each, made in tried.tasks.items() if name in (None, each)}
    if not tasks:
        raise BadRequest(
            f"the file declares {'no reactive task' if name is None else f'no task {name}'}: check its name"
        )
    spans = {each: (duration(pool.ageing), duration(pool.max_hold)) for each, pool in tried.pools.items()}
    pools = {
        each: Pool(
            each,
            pool.max_parallel,
            _per_second(pool.rate_limit),
            ageing=instants.span(spans[each][0]),
            max_hold=instants.span(spans[each][1]),
        )
        for each, pool in tried.pools.items()
    }
    return Trial(tasks, pools)


def _per_second(rate: str | None) -> float | None:
    return None if rate is None else Rate.parse(rate).per_second


def _trigger(task: Task, text: str) -> Trigger:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--trigger is not JSON: {error}.") from None
    if isinstance(data, dict):
        data.setdefault("format", FORMAT)
    interval = None if task.min_interval is None else timedelta(microseconds=task.min_interval)
    return checked_trigger(task.name, from_json(data), interval)


def _progress(what: str, since: datetime, until: datetime) -> Callable[[Instant], None]:
    begun = last = time.monotonic()
    whole = (until - since).total_seconds()

    def told(now: Instant) -> None:
        nonlocal last
        moment = time.monotonic()
        if moment - max(begun, last) >= QUIET_SECONDS:
            last = moment
            share = (to_datetime(now) - since).total_seconds() / whole
            click.echo(f"{what}: {share:.0%}, at {shown(now)}", err=True)

    return told
