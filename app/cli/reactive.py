"""`tidemill reactive`: tasks that start because data became fresher, looked at."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from datetime import datetime, timedelta

import click

from app.cli import reactive_change, reactive_plan
from app.cli.arguments import NONE, OrNone, RateText, changed, limit_option
from app.cli.output import document, heading, json_option, table, told_of_more
from app.cli.reactive_arguments import At, named, task_argument
from app.cli.reactive_words import shown
from app.db import transaction
from triggers import listing, lookup, missed, pools
from triggers.listing import Listed, PastRun, PoolFigures
from triggers.why import why as reason_of


@click.group()
def reactive() -> None:
    """Looks at tasks that data starts, and steers them.

    TASK may be the end of a name: build_mart for shop.marts.build_mart.
    """


for command in (*reactive_change.COMMANDS, reactive_plan.plan):
    reactive.add_command(command)


@reactive.command("list")
@click.option("--pool", help="Tasks of this pool.")
@click.option("--state", type=click.Choice(listing.STATES, case_sensitive=False), help="Tasks in this state.")
@click.option("--missed", "windows", is_flag=True, help="Windows that closed unused, instead of tasks.")
@limit_option(1000)
@json_option
def list_(*, pool: str | None, state: str | None, windows: bool, limit: int, as_json: bool) -> None:
    """Lists tasks with what each is doing.

    With --missed, the windows in which a trigger held and no run used it, the last first.

    \b
    Examples:
      tidemill reactive list
      tidemill reactive list --pool marts --state quarantined
      tidemill reactive list --missed --limit 20
    """
    if windows:
        if pool or state:
            raise click.UsageError("--missed lists windows, not tasks: leave out --pool and --state.")
        _list_missed(limit, as_json=as_json)
        return
    with transaction() as session:
        wanted = None if pool is None else lookup.pool(session, pool)
        found = listing.tasks(session, pool=wanted, state=state, limit=limit)
    if as_json:
        document({"tasks": [asdict(each) for each in found]})
    else:
        table(
            ("task", "state", "pool", "priority", "last run", "ended", "failures", "reason"),
            [(t.name, t.state, t.pool, t.priority, _last(t), t.ended_at, t.failures or None, t.reason) for t in found],
            empty="there is no such task" if pool or state else "no reactive task is known: run 'tidemill migrate'",
        )
    told_of_more(found, limit)


def _list_missed(limit: int, *, as_json: bool) -> None:
    with transaction() as session:
        found = missed.listed(session, limit=limit)
    if as_json:
        document({"missed": [asdict(each) for each in found]})
    else:
        table(
            ("task", "opened", "closed", "was open", "run", "reason"),
            [(w.task, w.opened_at, w.closed_at, w.closed_at - w.opened_at, w.run_id, w.reason) for w in found],
            empty="no window was missed",
        )
    told_of_more(found, limit)


def _last(task: Listed) -> str | None:
    return None if task.run_id is None else f"{task.run_id} {task.last_run}"


@reactive.command()
@task_argument
@click.option("--at", type=At(), help="As it was evaluated then: 2026-07-01T12:00:00Z, or 2h ago.")
@json_option
def why(*, task: str, at: datetime | None, as_json: bool) -> None:
    """Says why a task runs, or does not.

    Its conditions with what was last seen, what is there now and how far that is from firing; and what holds it.

    \b
    Examples:
      tidemill reactive why build_orders_mart
      tidemill reactive why build_orders_mart --at "2h ago" --json
    """
    with transaction() as session:
        found = reason_of(session, lookup.task(session, task), at)
    if as_json:
        document(asdict(found))
        return
    for line in shown(found):
        click.echo(line)


@reactive.command()
@task_argument
@limit_option(20)
@json_option
def runs(*, task: str, limit: int, as_json: bool) -> None:
    """Lists the runs of a task, the latest first.

    A window is one that a person gave, with --from and --to of 'tidemill reactive run'.

    \b
    Example:
      tidemill reactive runs build_orders_mart --limit 5
    """
    with transaction() as session:
        name = lookup.task(session, task)
        found = listing.runs(session, name, limit=limit)
    if as_json:
        document({"task": name, "runs": [asdict(each) for each in found]})
    else:
        table(
            ("run", "state", "kind", "made", "started", "took", "tries", "window", "error"),
            [
                (r.id, r.state, r.kind, r.created_at, r.started_at, _took(r), r.attempts, _window(r), r.error)
                for r in found
            ],
            empty=f"{name} has never run",
        )
    told_of_more(found, limit)


def _took(run: PastRun) -> timedelta | None:
    return None if run.started_at is None or run.ended_at is None else run.ended_at - run.started_at


def _window(run: PastRun) -> str | None:
    """What a person gave it; what a trigger gave it is in the JSON."""
    ends = [run.window_from, run.window_to]
    return " to ".join(named(each) for each in ends if each is not None) or None


@reactive.command()
@click.argument("name")
@click.option("--parallel", type=OrNone(1), help="How many may run at once, or 'none'.")
@click.option("--rate", type=RateText(), help="How many may start in a time, as in 10/min, or 'none'.")
@json_option
def pool(*, name: str, parallel: int | str | None, rate: str | None, as_json: bool) -> None:
    """Shows a pool of tasks, or limits it.

    For the whole cluster, from the next start on. What the code declares is applied again only when that changes.

    \b
    Examples:
      tidemill reactive pool marts
      tidemill reactive pool marts --parallel 4 --rate 10/min
    """
    with transaction() as session:
        lookup.pool(session, name)
    if changes := changed(max_parallel=parallel, rate_limit=rate):
        pools.configure(name, **changes)
    with transaction() as session:
        found = listing.pool(session, name)
        waiting = listing.tasks(session, pool=name, state="waiting", limit=10) if found.waiting else []
    if as_json:
        document(asdict(found) | {"first_waiting": [each.name for each in waiting]})
        return
    _show_pool(found)
    if waiting:
        heading("Waiting, as listed by name")
        table(("task", "priority", "run"), [(each.name, each.priority, each.run_id) for each in waiting])


def _show_pool(found: PoolFigures) -> None:
    limits = [f"{found.max_parallel} at once"] if found.max_parallel is not None else []
    limits += [f"{found.rate_limit} starts"] if found.rate_limit is not None else []
    queue = f"reactive.{found.name}"
    lines = [
        ("limits", ", ".join(limits) or NONE),
        ("paused", f"yes: tidemill queue resume {shlex.quote(queue)}" if found.paused else "no"),
        ("ageing", f"one priority more for each {found.ageing.total_seconds():g} s of waiting"),
        ("longest hold", NONE if found.max_hold is None else f"{found.max_hold.total_seconds():g} s"),
        ("tasks", found.tasks),
        ("waiting", found.waiting),
        ("running", found.running),
    ]
    click.secho(f"pool {found.name}", bold=True)
    for name, value in lines:
        click.echo(f"{name:13} {value}")
    declared = found.declared
    if declared is not None and (declared["max_parallel"], declared["rate_limit"]) != (
        found.max_parallel,
        found.rate_limit,
    ):
        words = f"--parallel {declared['max_parallel'] or NONE} --rate {declared['rate_limit'] or NONE}"
        again = f"tidemill reactive pool {shlex.quote(found.name)} {words}"
        click.echo(f"The code declares other limits; to go back to them: {again}")
