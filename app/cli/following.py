"""Shows how far services have got with long work, until it stands."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, TypeVar

import click

from app.cli.interrupts import Interrupts
from app.cli.progress import progress
from app.errors import Unavailable

POLL_SECONDS = 0.5


class Work(Protocol):
    @property
    def total(self) -> int: ...

    @property
    def left(self) -> timedelta | None: ...


W = TypeVar("W", bound=Work)


def follow(what: str, look: Callable[[], W], done: Callable[[W], int], goes_on: Callable[[W], bool]) -> W:
    """How it was when it stood, or at Ctrl-C, which ends the command and not the work."""
    found, silent = look(), False
    with Interrupts() as interrupts, progress(what, found.total) as bar:
        interrupts.patient()
        while goes_on(found) and not interrupts.wait(POLL_SECONDS):
            try:
                found = look()
            except Unavailable as error:
                if not silent:
                    click.echo(f"Note: {error}; it is tried again", err=True)
                silent = True
                continue
            silent = False
            bar.at(done(found), found.left)
    return found
