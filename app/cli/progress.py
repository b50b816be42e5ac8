"""How far long work has got: a bar on a terminal, a line now and then elsewhere; always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import click

from app.cli.output import span

LINE_SECONDS = 5.0


class Progress:
    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._told = time.monotonic()
        self._width = 0
        self._terminal = sys.stderr.isatty()

    def at(self, done: int, left: timedelta | None = None) -> None:
        now = time.monotonic()
        text = f"{done} of {self._total} {self._what}" + ("" if left is None else f", {span(left)} left")
        if self._terminal:
            share = min(1.0, done / self._total) if self._total else 1.0
            line = f"[{'#' * int(share * 30):30}] {text}"
            click.echo(f"\r{line:{self._width}}", err=True, nl=False)
            self._width = len(line)
        elif now - self._told >= LINE_SECONDS:
            click.echo(text, err=True)
            self._told = now

    def end(self) -> None:
        if self._width:
            click.echo(err=True)


@contextmanager
def progress(what: str, total: int) -> Iterator[Progress]:
    """Its line is ended, however the work ends."""
    found = Progress(what, total)
    try:
        yield found
    finally:
        found.end()
