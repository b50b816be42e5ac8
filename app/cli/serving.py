"""What `tidemill console` and `tidemill rpc` have in common: a server that runs until it is told to stop."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import click

from app import db
from app.cli.interrupts import Interrupts
from app.errors import SettingsError
from app.settings import settings

LOOK_SECONDS = 1.0
FILE = click.Path(path_type=Path, dir_okay=False)

tls_options = (
    click.option("--tls-cert", type=FILE, help="The certificate of the server, with those between it and its CA."),
    click.option("--tls-key", type=FILE, help="Its private key."),
)
plaintext_option: Callable[[Any], Any] = click.option(
    "--plaintext", is_flag=True, help="Listen without TLS where other machines can reach it."
)


class Server(Protocol):
    def start(self) -> str: ...

    def stop(self, grace: float, hurry: Callable[[], bool]) -> bool: ...


def chosen(group: str, given: dict[str, Any]) -> dict[str, Any]:
    """What the command line says, and else the settings of this group."""
    own = settings()
    return {
        word: getattr(own, f"{group}_{word}") if value is None or value is False else value
        for word, value in given.items()
    }


def refuse_half(cert: Path | None, key: Path | None) -> None:
    if (cert is None) != (key is None):
        raise SettingsError("--tls-cert and --tls-key belong together: give both, or neither")


def serve(
    log: logging.Logger, make: Callable[[], Server], begun: Callable[[str], None], grace: timedelta | None, what: str
) -> None:
    """Until SIGTERM or Ctrl-C. `begun` is told where it listens."""
    with Interrupts() as interrupts:
        server = make()
        interrupts.patient()
        begun(server.start())
        while not interrupts.wait(LOOK_SECONDS):
            pass
        log.info("stopping")
        over = server.stop((settings().grace if grace is None else grace).total_seconds(), interrupts.hurry)
    log.info("stopped" if over else f"stopped; {what} that did not end in time were cut off")
    if not over:
        # Their threads may be in queries yet; nothing of them is committed.
        logging.shutdown()
        os._exit(0)
    db.dispose()
