"""`tidemill console`: the HTTP server."""

from __future__ import annotations

import logging
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from sqlalchemy.exc import SQLAlchemyError

from app import db, logs
from app.cli import first_token, modules
from app.cli.arguments import Span, options
from app.cli.interrupts import Interrupts
from app.errors import DatabaseError, SettingsError
from app.settings import Settings, settings

if TYPE_CHECKING:
    from app.console.server import Options

log = logging.getLogger("app.console")
LOOK_SECONDS = 1.0
FILE = click.Path(path_type=Path, dir_okay=False)

_OPTIONS = options(
    click.option("--host", help="The address to listen on; 127.0.0.1 unless set."),
    click.option("--port", type=click.IntRange(0, 65535), help="The port; 8765 unless set, 0 takes a free one."),
    click.option("--tls-cert", type=FILE, help="The certificate of the server, with those between it and its CA."),
    click.option("--tls-key", type=FILE, help="Its private key."),
    click.option("--plaintext", is_flag=True, help="Listen without TLS where other machines can reach it."),
    click.option("--threads", type=click.IntRange(1, 1000), help="Requests that work at once; 10 unless set."),
    click.option(
        "--max-calls", type=click.IntRange(1, 100_000), help="Requests with those that wait; 1000 unless set."
    ),
    click.option("--grace", type=Span(), help="What running requests have to end; TIDEMILL_GRACE unless given."),
)


@click.command()
@_OPTIONS
def console(*, grace: timedelta | None, **given: Any) -> None:
    """Serves the pages of operators, and HTTP for programs.

    People sign in with a token of a viewer or an operator. Where there never was one of an operator, the first is made,
    and printed once, on a terminal. Actors in other programs poll for tasks, and bring their results.

    Until SIGTERM or Ctrl-C; then running requests may end. The modules of TIDEMILL_MODULES are imported where they are
    set. All but GET /healthz and the page to sign in needs a token: see 'tidemill token create'.

    \b
    Examples:
      tidemill console
      tidemill console --host 0.0.0.0 --tls-cert server.pem --tls-key server.key
    """
    found = chosen(settings(), given)
    logs.set_up("console", "%(asctime)s %(levelname)s console: %(message)s", settings().log_level, force=True)
    # What it says of starting and stopping is said below, in our words.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    modules.refuse_names_of_ours()
    with Interrupts() as interrupts:
        modules.application()
        # No other command needs it.
        from app.console.calls import page_threads
        from app.console.server import Server

        db.become_server(found.threads + page_threads(found.threads))
        server = Server(found)
        interrupts.patient()
        url = server.start()
        log.info("listening on %s", url)
        _welcome(url)
        while not interrupts.wait(LOOK_SECONDS):
            pass
        log.info("stopping")
        over = server.stop((settings().grace if grace is None else grace).total_seconds(), interrupts.hurry)
    log.info("stopped" if over else "stopped; requests that did not end in time were cut off")
    if not over:
        # Their threads may be in queries yet; nothing of them is committed.
        logging.shutdown()
        os._exit(0)
    db.dispose()


def _welcome(url: str) -> None:
    """A token is for a terminal: what is no terminal is often a log."""
    try:
        with db.transaction() as session:
            if not sys.stdout.isatty():
                if first_token.missing(session):
                    log.warning("nobody can act on the pages yet: make a token with '%s'", first_token.MAKE_ONE)
                return
            text = first_token.make(session)
    except (DatabaseError, SQLAlchemyError):
        log.warning("the database does not answer, or is not migrated: the pages say so too")
        return
    if text is not None:
        click.echo(f"Sign in at {url} with this token of an operator; it is shown this once:\n\n  {text}\n")


def chosen(own: Settings, given: dict[str, Any]) -> Options:
    """What the command line says, and else the settings."""
    from app.console.server import Options

    def value(name: str) -> Any:
        found = given[name]
        return getattr(own, f"console_{name}") if found is None or found is False else found

    cert, key = value("tls_cert"), value("tls_key")
    if (cert is None) != (key is None):
        raise SettingsError("--tls-cert and --tls-key belong together: give both, or neither")
    return Options(
        host=value("host"),
        port=value("port"),
        tls=None if cert is None else (cert, key),
        plaintext=value("plaintext"),
        threads=value("threads"),
        max_calls=value("max_calls"),
    )
