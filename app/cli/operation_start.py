"""`tidemill recover operation start KIND`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from app.cli.arguments import RateText, options
from app.cli.job_filters import FILTERS as JOB_FILTERS
from app.cli.job_filters import LOG_ONLY
from app.cli.job_filters import filters_of as job_filters_of
from app.cli.operation_words import follow, item_words, rate_words
from app.cli.output import agree, document, json_option, several, table, yes_option
from app.cli.process_search import filter_options, filters_of, template_options, words_of
from app.cli.process_words import ProcessId
from app.db import transaction
from app.jobs.search import Filters as JobFilters
from processes.filters import Filters
from processes.wording import clean
from recovery import operations
from recovery.operations import Ids, Kind, Named, Order, Preview
from recovery.operations.starting import PRIORITIES, RATE
from stages import lookup as stage_lookup
from stages.parked import Selection

_ASKED = {
    Kind.RECOVER: "Repair what is wrong with {}?",
    Kind.RESTART: "Restart {} from the start?",
    Kind.RESTART_TASK: "Restart {} from these tasks?",
    Kind.ABORT: "Abort {}?",
    Kind.REDRIVE: "Visit {} again?",
    Kind.RERUN_REACTIVE: "Run {} again?",
    Kind.RERUN_JOBS: "Put {} in again?",
}
_WHAT = {
    Kind.REDRIVE: "entity",
    Kind.RERUN_REACTIVE: "reactive task",
    Kind.RERUN_JOBS: "job",
    Kind.RESTART_TASK: "item",
}

_HOW = ("dry_run", "rate", "priority", "reason", "wait", "yes", "as_json")
_every: Callable[[Any], Any] = click.option("--all", "every", is_flag=True, help="Everything there is.")
_COMMON: tuple[Callable[[Any], Any], ...] = (
    click.option("--limit", type=click.IntRange(1), help="No more than so many, such as to try it with a few first."),
    click.option("--dry-run", is_flag=True, help="Only count, and show some."),
    click.option("--rate", type=RateText(), default=RATE, show_default=True, help="Items in a time, or 'none'."),
    click.option(
        "--priority",
        type=click.IntRange(PRIORITIES[0], PRIORITIES[-1]),
        default=0,
        show_default=True,
        help="A larger one comes first.",
    ),
    click.option("--reason", metavar="TEXT", help="Why: kept with it, and in the audit."),
    click.option("--wait", is_flag=True, help="Show how far it is until it has ended; Ctrl-C leaves it going."),
    yes_option,
    json_option,
)
_repeat: Callable[[Any], Any] = click.option(
    "--repeat", is_flag=True, help="Also call what is not repeatable again; else such processes are skipped."
)
_OF_PROCESSES = (
    filter_options,
    template_options,
    click.option("--process", "ids", type=ProcessId(), multiple=True, help="This one, by its number; may be repeated."),
    _every,
    *_COMMON,
)


@click.group()
def start() -> None:
    """Starts an operation over what matches at this moment.

    Shows how many that are, and asks. Without a filter, --all says that everything is meant. Prints the id.
    """


def _processes(given: dict[str, Any]) -> Filters | Ids:
    ids, every, template, parameters = (given.pop(word) for word in ("ids", "every", "template", "parameters"))
    filters = filters_of(words_of(given), template, parameters)
    _only_one({"filters": filters != Filters(), "--process": bool(ids), "--all": every})
    return Ids(tuple(dict.fromkeys(ids))) if ids else filters


def _only_one(said: dict[str, bool]) -> None:
    if sum(said.values()) != 1:
        *words, last = said
        raise click.UsageError(f"Say which: {', '.join(words)} or {last}; one of them.")


def _start(
    order: Order,
    *,
    dry_run: bool,
    rate: str,
    priority: int,
    reason: str | None,
    wait: bool,
    yes: bool,
    as_json: bool,
) -> None:
    if as_json and not dry_run:
        raise click.UsageError("--json shows what would be done: give --dry-run as well")
    found = operations.preview(order)
    if as_json:
        document(asdict(found))
        return
    if not found.total:
        click.echo("Nothing matches.")
        return
    _show(order, found)
    if dry_run:
        click.echo("Nothing was changed.")
        return
    if order.kind in _ASKED:
        agree(_ASKED[order.kind].format(_items(order, found.total)), yes=yes)
    made = operations.start(order, rate=rate_words(rate), priority=priority, reason=reason)
    click.echo(made)
    if wait:
        follow(made)


def _items(order: Order, count: int) -> str:
    word = _WHAT.get(order.kind, "process")
    plural = {"process": "processes", "entity": "entities"}.get(word)
    return several(count, word) if count == 1 or plural is None else f"{count} {plural}"


def _show(order: Order, found: Preview) -> None:
    click.echo(_items(order, found.total))
    table(("for example", ""), [(item_words(each), clean(each.says or "", 200)) for each in found.sample])
    if found.total > len(found.sample):
        click.echo(f"… and {found.total - len(found.sample)} more")


def _split(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What says which, and what says how."""
    how = {word: given.pop(word) for word in _HOW}
    return given, how


def _of_processes(kind: Kind, given: dict[str, Any], **more: Any) -> None:
    which, how = _split(given)
    limit = which.pop("limit")
    _start(Order(kind, _processes(which), limit=limit, **more), **how)


@start.command()
@options(*_OF_PROCESSES)
def check(**given: Any) -> None:
    """Looks at processes, says what is wrong, and changes nothing.

    \b
    Examples:
      tidemill recover operation start check --all --rate none --wait
      tidemill recover operation start check --type fulfil
    """
    _of_processes(Kind.CHECK, given)


@start.command()
@options(*_OF_PROCESSES)
def recover(**given: Any) -> None:
    """Looks at processes, and repairs what can be repaired.

    \b
    Example:
      tidemill recover operation start recover --type fulfil --wait
    """
    _of_processes(Kind.RECOVER, given)


@start.command()
@options(*_OF_PROCESSES, _repeat)
def restart(*, repeat: bool, **given: Any) -> None:
    """Does processes again from their start.

    All that they did is forgotten. Those that have finished are restarted too, unless --state says otherwise.

    \b
    Example:
      tidemill recover operation start restart --type fulfil --state broken --since 2h --dry-run
    """
    _of_processes(Kind.RESTART, given, repeat=repeat)


@start.command("restart-task")
@options(*_OF_PROCESSES)
@click.option(
    "--from", "task", metavar="TASK", type=click.IntRange(1, 2**31 - 1), help="From this task, by its number."
)
@click.option("--from-actor", metavar="NAME", help="From the tasks of this actor.")
@_repeat
def restart_task(*, task: int | None, from_actor: str | None, repeat: bool, **given: Any) -> None:
    """Does processes again from the tasks that are broken.

    Each broken task is an item: --actor and --text say which. Or from others, broken or not: --from, --from-actor.
    What rests on them is done again too, the rest keeps its results.

    \b
    Examples:
      tidemill recover operation start restart-task --actor charge --text 503 --rate 50/s --wait
      tidemill recover operation start restart-task --type fulfil --since 1d --from-actor charge
    """
    if task is not None and from_actor is not None:
        raise click.UsageError("Say one of --from and --from-actor.")
    _of_processes(Kind.RESTART_TASK, given, task=task, actor=from_actor, repeat=repeat)


@start.command()
@options(*_OF_PROCESSES)
def abort(**given: Any) -> None:
    """Ends processes that have not finished.

    \b
    Example:
      tidemill recover operation start abort --type fulfil --attribute shop=7 --reason 'the shop is closed'
    """
    _of_processes(Kind.ABORT, given)


@start.command()
@click.argument("stage", metavar="[STAGE]", required=False)
@click.option("--id", "ids", multiple=True, help="This entity; repeatable; needs STAGE.")
@click.option("--error", help="Whose error has this text in it.")
@click.option("--group", help="Of this group of errors, as 'stage parked' names it.")
@options(_every, *_COMMON)
def redrive(
    *,
    stage: str | None,
    ids: tuple[str, ...],
    error: str | None,
    group: str | None,
    every: bool,
    limit: int | None,
    **how: Any,
) -> None:
    """Visits what is parked again, at a rate.

    \b
    Example:
      tidemill recover operation start redrive offer.predict --error timeout --rate 20/s
    """
    if ids and stage is None:
        raise click.UsageError("--id names entities of a STAGE.")
    _only_one({"STAGE, --error or --group": bool(stage or error or group), "--all": every})
    stages = None
    if stage is not None:
        with transaction() as session:
            known = stage_lookup.stage(session, stage)
        stages, ids = (known,), tuple(stage_lookup.entity(known.kind, each) for each in ids)
    _start(Order(Kind.REDRIVE, Selection(stages, ids, error, group), limit=limit), **how)


@start.command("rerun-reactive")
@click.argument("patterns", metavar="TASK…", nargs=-1, required=True)
@click.option("--record", is_flag=True, help="What a run was checked with counts as seen.")
@options(*_COMMON)
def rerun_reactive(*, patterns: tuple[str, ...], record: bool, limit: int | None, **how: Any) -> None:
    """Runs reactive tasks by hand, whatever their triggers say.

    TASK is a name; '*' in it stands for any text, and '?' for any character. A task that has a run is skipped.

    \b
    Example:
      tidemill recover operation start rerun-reactive 'marts.*' --rate 1/s
    """
    _start(Order(Kind.RERUN_REACTIVE, Named(patterns), record=record, limit=limit), **how)


@start.command("rerun-jobs")
@options(*JOB_FILTERS, *LOG_ONLY)
@click.option(
    "--log-id", "log_ids", type=click.IntRange(1, 2**63 - 1), multiple=True, help="This execution; repeatable."
)
@options(_every, *_COMMON)
def rerun_jobs(*, log_ids: tuple[int, ...], **given: Any) -> None:
    """Puts past jobs in again, as new ones.

    Each once, however many of its executions match.

    \b
    Example:
      tidemill recover operation start rerun-jobs --outcome failed --task shop.charge --since 1d
    """
    which, how = _split(given)
    limit, every = which.pop("limit"), which.pop("every")
    filters = job_filters_of(which)
    _only_one({"filters": filters != JobFilters(), "--log-id": bool(log_ids), "--all": every})
    of = Ids(tuple(dict.fromkeys(log_ids))) if log_ids else filters
    _start(Order(Kind.RERUN_JOBS, of, limit=limit), **how)
