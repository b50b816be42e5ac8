"""`tidemill rpc`: the gRPC server."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app import db, logs
from app.cli import modules
from app.cli.arguments import Span, options
from app.cli.serving import FILE, chosen, plaintext_option, refuse_half, serve, tls_options
from app.errors import SettingsError
from app.settings import settings

if TYPE_CHECKING:
    from app.rpc.server import Options, Server

log = logging.getLogger("app.rpc")

_OPTIONS = options(
    click.option("--listen", metavar="HOST:PORT", help="Where to listen; 127.0.0.1:7233 unless set. Or unix:PATH."),
    *tls_options,
    click.option("--client-ca", type=FILE, help="Clients must show a certificate that this CA has signed."),
    plaintext_option,
    click.option("--max-message", type=click.IntRange(1024, 2**28), help="Bytes of a message; 4 MiB unless set."),
    click.option("--threads", type=click.IntRange(1, 1000), help="Calls that work at once; 10 unless set."),
    click.option("--max-calls", type=click.IntRange(1, 100_000), help="Calls with those that wait; 100 unless set."),
    click.option("--deadline", type=Span(), help="Of a call that has none; 10s unless set, 60s at most."),
    click.option("--grace", type=Span(), help="What running calls have to end; TIDEMILL_GRACE unless given."),
    click.option("--reflection", is_flag=True, help="Tell holders of tokens which services there are."),
)


@click.command()
@_OPTIONS
def rpc(*, grace: timedelta | None, **given: Any) -> None:
    """Serves gRPC: states of stages, the control table.

    Until SIGTERM or Ctrl-C; then running calls may end. The modules of TIDEMILL_MODULES are imported, as workers do:
    states can be updated of the entities that they declare. Every call needs a token: see 'tidemill token create'.

    \b
    Examples:
      tidemill rpc
      tidemill rpc --listen 0.0.0.0:7233 --tls-cert server.pem --tls-key server.key --client-ca clients.pem
    """
    # What it says on stderr by itself is said in words of ours, or is of no use to anybody. Read when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    found = _options(**chosen("rpc", given))
    logs.set_up("rpc", "%(asctime)s %(levelname)s rpc: %(message)s", settings().log_level, force=True)
    modules.refuse_names_of_ours()
    serve(log, lambda: _server(found), lambda address: _begun(address, found), grace, "calls")


def _server(found: Options) -> Server:
    modules.application()
    # It takes a fifth of a second, and no other command needs it.
    from app.rpc.server import Server

    db.become_server(found.threads)
    return Server(found)


def _options(
    *, tls_cert: Path | None, tls_key: Path | None, client_ca: Path | None, deadline: timedelta, **given: Any
) -> Options:
    from app.rpc.certificates import Files
    from app.rpc.server import Options

    refuse_half(tls_cert, tls_key)
    tls = None if tls_cert is None or tls_key is None else Files(tls_cert, tls_key, client_ca)
    if tls is None and client_ca is not None:
        raise SettingsError("--client-ca asks clients for certificates, which needs --tls-cert and --tls-key too")
    seconds = deadline.total_seconds()
    if not 0.1 <= seconds <= 60:
        raise SettingsError(f"--deadline {seconds:g}s must lie between 100ms and 60s")
    return Options(tls=tls, deadline=seconds, **given)


def _begun(address: str, found: Options) -> None:
    log.info("listening on %s, %s", address, _guarded(found))


def _guarded(found: Options) -> str:
    if found.tls is None:
        return "without TLS"
    return "with TLS" if found.tls.client_ca is None else "with TLS and certificates of clients"
