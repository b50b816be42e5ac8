"""`tidemill console`: the HTTP server."""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from sqlalchemy.exc import SQLAlchemyError

from app import db, logs
from app.cli import first_token, modules
from app.cli.arguments import Span, options
from app.cli.serving import chosen, plaintext_option, refuse_half, serve, tls_options
from app.errors import DatabaseError
from app.settings import settings

if TYPE_CHECKING:
    from app.console.server import Options, Server

log = logging.getLogger("app.console")

_OPTIONS = options(
    click.option("--host", help="The address to listen on; 127.0.0.1 unless set."),
    click.option("--port", type=click.IntRange(0, 65535), help="The port; 8765 unless set, 0 takes a free one."),
    *tls_options,
    plaintext_option,
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
    found = _options(**chosen("console", given))
    logs.set_up("console", "%(asctime)s %(levelname)s console: %(message)s", settings().log_level, force=True)
    # What it says of starting and stopping is said below, in our words.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    modules.refuse_names_of_ours()
    serve(log, lambda: _server(found), _welcome, grace, "requests")


def _server(found: Options) -> Server:
    modules.application()
    # No other command needs it.
    from app.console.calls import page_threads
    from app.console.server import Server

    db.become_server(found.threads + page_threads(found.threads))
    return Server(found)


def _welcome(url: str) -> None:
    """A token is for a terminal: what is no terminal is often a log."""
    log.info("listening on %s", url)
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


def _options(*, tls_cert: Path | None, tls_key: Path | None, **given: Any) -> Options:
    from app.console.server import Options

    refuse_half(tls_cert, tls_key)
    return Options(tls=None if tls_cert is None or tls_key is None else (tls_cert, tls_key), **given)
