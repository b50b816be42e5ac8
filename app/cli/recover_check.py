"""`tidemill recover check`: what must hold of the data, looked at, and put right."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click

from app.cli.arguments import Span
from app.cli.output import agree, document, json_option, table, yes_option
from app.cli.progress import progress
from recovery import invariants
from recovery.findings import Verdict
from recovery.invariants import Invariant, Looked, Repairs

#: By the verdict.
COLOURS: dict[str, str] = {
    Verdict.HARMLESS: "green",
    Verdict.DIAGNOSIS: "yellow",
    Verdict.REPAIRABLE: "red",
    Verdict.BROKEN: "red",
    invariants.UNKNOWN: "yellow",
}


@click.command()
@click.option("--repair", "repairs", is_flag=True, help="Put right what can be; asks first.")
@click.option(
    "--domain", "domains", type=click.Choice(invariants.DOMAINS), multiple=True, help="Only this; repeatable."
)
@click.option(
    "--within", type=Span("1ms", "1d"), default="20s", show_default=True, help="The longest that one query may take."
)
@yes_option
@json_option
def check(*, repairs: bool, domains: tuple[str, ...], within: timedelta, yes: bool, as_json: bool) -> None:
    """Looks for rows that disagree, by name.

    What is harmless hurts nobody; a diagnosis says who has to do something. What is repairable is put right by what
    other rows say, and what is broken is declared so: parked, cancelled, or its process broken. No work is lost by
    it. What was not looked at to its end within the time is unknown. Exit 1 where something repairable or broken is
    left, or anything is unknown.

    \b
    Examples:
      tidemill recover check
      tidemill recover check --domain process --json
      tidemill recover check --repair --yes
    """
    found = last = _look(invariants.chosen(domains), within)
    wrong = [each for each in found if each.invariant.wrong and each.keys]
    repairable = [each for each in wrong if each.invariant.repair is not None]
    if not as_json:
        _show(found)
    done = list[Repairs]()
    if repairs and repairable:
        if not as_json:
            _preview(repairable)
        agree(f"Repair {_sum(repairable)}?", yes=yes)
        done = _repair(repairable)
        last = _look([each.invariant for each in found], within)
        wrong = [each for each in last if each.invariant.wrong and each.keys]
        if not as_json:
            _tell(done, wrong)
    unknown = [each for each in last if each.failed]
    if as_json:
        document(_document(found, done, wrong) | {"sound": False if wrong else None if unknown else True})
    elif not found:
        click.echo(f"{len(invariants.chosen(domains))} checked: all hold")
    elif unknown:
        click.echo(f"{len(unknown)} of {len(invariants.chosen(domains))} unknown: --within allows more time", err=True)
    if wrong or unknown:
        click.get_current_context().exit(1)


def _look(chosen: Sequence[Invariant], within: timedelta) -> list[Looked]:
    """Those that do not hold, or could not be looked at."""
    found = []
    with progress("checked", len(chosen)) as bar:
        for number, each in enumerate(chosen):
            bar.at(number)
            found.append(invariants.look(each, within=within))
    return [each for each in found if each.keys or each.failed]


def _repair(found: Sequence[Looked]) -> list[Repairs]:
    """In the order of the catalogue, as one repair may need another before it."""
    done = list[Repairs]()
    with progress("repaired", sum(len(each.keys) for each in found)) as bar:
        for each in found:
            before = sum(one.repaired for one in done)

            def told(count: int, before: int = before) -> None:
                bar.at(before + count)

            done.append(invariants.repair(each.invariant, told))
    return done


def _count(each: Looked) -> str:
    return f"{len(each.keys)}{'+' * each.more}"


def _sum(found: Sequence[Looked]) -> str:
    count = sum(len(each.keys) for each in found)
    return f"{'more than ' * any(each.more for each in found)}{count} violation{'s' * (count != 1)}"


def _show(found: Sequence[Looked]) -> None:
    for each in found:
        entry = each.invariant
        mark = click.style(f"{each.verdict:10}", fg=COLOURS[each.verdict], bold=entry.wrong and not each.failed)
        if each.failed:
            click.echo(f"{mark} {entry.domain:9} {entry.name}: {each.failed}")
            continue
        click.echo(f"{mark} {entry.domain:9} {_count(each)} × not: {entry.name}")
        examples = ", ".join(each.examples)
        click.echo(f"{'':18} {examples}{', …' * (len(each.keys) > len(each.examples))}")
        if entry.bound is not None:
            click.echo(f"{'':18} looked at {entry.bound} rows at most")


def _preview(found: Sequence[Looked]) -> None:
    click.echo()
    rows = [(each.invariant.finding, _count(each), each.invariant.cure) for each in found]
    table(("finding", "count", "what is done"), rows)


def _tell(done: Sequence[Repairs], wrong: Sequence[Looked]) -> None:
    for each in done:
        if each.failed:
            click.echo(f"{each.invariant.finding}: {each.failed}", err=True)
    click.echo(f"\n{sum(each.repaired for each in done)} repaired: tidemill recover repairs lists them")
    if wrong:
        click.secho("left:", bold=True)
        _show(wrong)
        click.echo("What somebody holds or works at just now can be repaired later: run it again.")


def _document(found: Sequence[Looked], done: Sequence[Repairs], left: Sequence[Looked]) -> dict[str, Any]:
    repaired = {each.invariant.name: each for each in done}
    remaining = {each.invariant.name: len(each.keys) for each in left}
    listed = []
    for each in found:
        entry = each.invariant
        words = {
            "invariant": entry.name,
            "domain": entry.domain,
            "verdict": each.verdict,
            "finding": entry.finding,
            "count": len(each.keys),
            "more": each.more,
            "examples": list(each.examples),
            "bound": entry.bound,
            "failed": each.failed,
        }
        if entry.name in repaired:
            fixed = repaired[entry.name]
            words |= {"repaired": fixed.repaired, "left": remaining.get(entry.name, 0), "error": fixed.failed}
        listed.append(words)
    new = [name for name in remaining if name not in {each.invariant.name for each in found}]
    return {"violations": listed, "new": new}
