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
from app.cli.interrupts import Interrupts
from app.errors import SettingsError
from app.settings import Settings, settings

if TYPE_CHECKING:
    from app.rpc.server import Options

log = logging.getLogger("app.rpc")
LOOK_SECONDS = 1.0
FILE = click.Path(path_type=Path, dir_okay=False)

_OPTIONS = options(
    click.option("--listen", metavar="HOST:PORT", help="Where to listen; 127.0.0.1:7233 unless set. Or unix:PATH."),
    click.option("--tls-cert", type=FILE, help="The certificate of the server, with those between it and its CA."),
    click.option("--tls-key", type=FILE, help="Its private key."),
    click.option("--client-ca", type=FILE, help="Clients must show a certificate that this CA has signed."),
    click.option("--plaintext", is_flag=True, help="Listen without TLS where other machines can reach it."),
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
    found = chosen(settings(), given)
    logs.set_up("rpc", "%(asctime)s %(levelname)s rpc: %(message)s", settings().log_level, force=True)
    modules.refuse_names_of_ours()
    with Interrupts() as interrupts:
        modules.application()
        # It takes a fifth of a second, and no other command needs it.
        from app.rpc.server import Server

        db.become_server(found.threads)
        server = Server(found)
        interrupts.patient()
        address = server.start()
        log.info("listening on %s, %s", address, _guarded(found))
        while not interrupts.wait(LOOK_SECONDS):
            pass
        log.info("stopping")
        over = server.stop((settings().grace if grace is None else grace).total_seconds(), interrupts.hurry)
    log.info("stopped" if over else "stopped; calls that did not end in time were cut off")
    if not over:
        # Their threads may be in queries for as long as their deadlines say; nothing of them is committed.
        logging.shutdown()
        os._exit(0)
    db.dispose()


def chosen(own: Settings, given: dict[str, Any]) -> Options:
    """What the command line says, and else the settings."""
    from app.rpc.certificates import Files
    from app.rpc.server import Options

    def value(name: str) -> Any:
        return given[name] if given[name] not in (None, False) else getattr(own, f"rpc_{name}")

    cert, key, client_ca = (value(name) for name in ("tls_cert", "tls_key", "client_ca"))
    if (cert is None) != (key is None):
        raise SettingsError("--tls-cert and --tls-key belong together: give both, or neither")
    if cert is None and client_ca is not None:
        raise SettingsError("--client-ca asks clients for certificates, which needs --tls-cert and --tls-key too")
    deadline = value("deadline").total_seconds()
    if not 0.1 <= deadline <= 60:
        raise SettingsError(f"--deadline {deadline:g}s must lie between 100ms and 60s")
    return Options(
        listen=value("listen"),
        tls=None if cert is None else Files(cert, key, client_ca),
        plaintext=value("plaintext"),
        max_message=value("max_message"),
        threads=value("threads"),
        max_calls=value("max_calls"),
        deadline=deadline,
        reflection=value("reflection"),
    )


def _guarded(found: Options) -> str:
    if found.tls is None:
        return "without TLS"
    return "with TLS" if found.tls.client_ca is None else "with TLS and certificates of clients"
