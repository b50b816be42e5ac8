"""`tidemill probe SERVICE`: whether one service, on this machine, does its work. For supervisors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

import click

from app.cli.arguments import options
from app.cli.output import document, json_option
from app.health import listening, own
from app.health.sign import Sign

FLOWER = "http://127.0.0.1:5555/healthcheck"

_asked = options(
    click.option("--live", is_flag=True, help="Fail only where starting the service again helps."),
    json_option,
)


@click.group()
def probe() -> None:
    """Whether one service does its work.

    Run beside the service, with its settings: as the health check of a container, or the probe of a pod. Exit 1 if it
    does not. What is asked is the service on this machine; 'tidemill doctor' asks for all of them.

    With --live an outage of the database or the broker is no failure, nor what other services leave undone: for a
    supervisor that starts again what fails.

    \b
    Examples:
      tidemill probe worker --name mail
      tidemill probe scheduler --live
    """


@probe.command()
@click.option("--name", help="Of the worker, as celery's --hostname; 'celery' unless given, '@<this host>' is added.")
@_asked
def worker(*, name: str | None, live: bool, as_json: bool) -> None:
    """It reports to the database, and listens to the broker."""
    _say(own.worker(own.full_name(name)), live=live, as_json=as_json)


@probe.command()
@_asked
def scheduler(*, live: bool, as_json: bool) -> None:
    """Its loop goes round, and its duties are done.

    Each of them has a leader, and no event waits long to be published. With --live only its own loop.
    """
    _say(own.scheduler(alone=live), live=live, as_json=as_json)


@probe.command()
@_asked
def beat(*, live: bool, as_json: bool) -> None:
    """The broker took a message of it lately.

    Beat tells of itself by the file that TIDEMILL_BEAT_FILE names.
    """
    _say(own.beat(), live=live, as_json=as_json)


@probe.command()
@_asked
def console(*, live: bool, as_json: bool) -> None:
    """It answers, and so does the database."""
    _say(_and_database(listening.console(), live), live=live, as_json=as_json)


@probe.command()
@_asked
def rpc(*, live: bool, as_json: bool) -> None:
    """It answers, and so does the database."""
    _say(_and_database(listening.rpc(), live), live=live, as_json=as_json)


@probe.command()
@click.option("--url", default=FLOWER, help=f"Where it answers; {FLOWER} unless given.")
@_asked
def flower(*, url: str, live: bool, as_json: bool) -> None:
    """It answers."""
    _say(listening.flower(url), live=live, as_json=as_json)


def _and_database(signs: Iterator[Sign], live: bool) -> Iterator[Sign]:  # noqa: FBT001
    yield from signs
    if not live:
        yield from own.database()


def _seen(signs: Iterable[Sign]) -> Iterator[Sign]:
    try:
        yield from signs
    except own.Stop as last:
        found: Any = last.args[0]
        yield found


def _say(signs: Iterable[Sign], *, live: bool, as_json: bool) -> None:
    found = list(_seen(signs))
    wrong: Callable[[Sign], bool] = (lambda sign: sign.curable) if live else (lambda sign: not sign.good)
    failed = any(wrong(sign) for sign in found)
    if as_json:
        document({"well": not failed, "findings": [asdict(sign.finding) for sign in found]})
    else:
        for sign in found:
            seen = sign.finding
            click.echo(f"{seen.level:5} {seen.check:10} {seen.detail}" + (f" → {seen.advice}" if seen.advice else ""))
    if failed:
        click.get_current_context().exit(1)
