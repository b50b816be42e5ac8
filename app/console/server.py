"""The server as a whole: where it listens, with what, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from sqlalchemy import event

from app import db
from app.console.calls import Calls
from app.console.certificates import Certificates
from app.console.gate import Gate
from app.console.site import site
from app.errors import SettingsError
from app.hosts import refuse_open

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
#: How often the files of the certificate are looked at.
RENEW_SECONDS = 1.0
#: What is cut off may take so long to notice.
GOODBYE_SECONDS = 0.5
#: No query of a request lasts longer.
QUERY_SECONDS = 30


@dataclass(frozen=True)
class Options:
    host: str
    port: int
    tls: tuple[Path, Path] | None
    plaintext: bool
    threads: int
    max_calls: int

    def __post_init__(self) -> None:
        if self.tls is None and not self.plaintext:
            refuse_open(self.host, self.host)


class Server:
    """It serves from a thread of its own: the main one is for signals."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._certificates = Certificates(*options.tls) if options.tls is not None else None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidemill-console", daemon=True)
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._calls: Calls | None = None
        self._server: uvicorn.Server | None = None

    def start(self) -> str:
        """The URL at which it listens, with the port that was found where 0 was asked for."""
        self._socket = _listening(self.options.host, self.options.port)
        host, port = self._socket.getsockname()[:2]
        if not event.contains(db.engine(), "connect", _bounded):
            event.listen(db.engine(), "connect", _bounded)
        self._thread.start()
        self._ready.wait()
        scheme = "http" if self._certificates is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def stop(self, grace: float, hurry: Callable[[], bool] = lambda: False) -> bool:
        """No more requests; those that run may end, those that wait end at once. Whether all have."""
        assert self._loop is not None and self._stopping is not None  # noqa: S101, PT018 - it was started
        assert self._server is not None and self._calls is not None  # noqa: S101, PT018
        end = time.monotonic() + grace
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._server.should_exit = True
        while self._thread.is_alive() and time.monotonic() < end and not hurry():
            self._thread.join(LOOK_SECONDS)
        self._server.force_exit = True
        self._thread.join(GOODBYE_SECONDS)
        return self._calls.close(GOODBYE_SECONDS)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._calls = Calls(Gate(), self.options.threads, self._stopping)
        app = site(self._calls, self._stopping, self.options.max_calls)
        self._server = uvicorn.Server(self._config(app))
        self._ready.set()
        renewing = asyncio.ensure_future(self._renew())
        try:
            await self._server.serve(sockets=[self._socket] if self._socket else None)
        finally:
            renewing.cancel()

    def _config(self, app: Any) -> uvicorn.Config:
        certificates = self._certificates
        # It would log the query, in which somebody may have put a token.
        logging.getLogger("uvicorn.access").setLevel(logging.CRITICAL)
        return uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            # The log is ours, and who calls is who the connection is from.
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            ssl_context_factory=None if certificates is None else lambda *_: certificates.context,
        )

    async def _renew(self) -> None:
        while self._certificates is not None:
            await asyncio.sleep(RENEW_SECONDS)
            self._certificates.look()


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address, family=family, backlog=1024)
    except OSError:
        raise SettingsError(
            f"{host} port {port} cannot be listened on: it is taken, or no address of this machine; "
            "TIDEMILL_CONSOLE_HOST, TIDEMILL_CONSOLE_PORT name another"
        ) from None


def _bounded(connection: Any, _record: object) -> None:
    """A query that waits for a lock holds a thread."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, false)", (f"{QUERY_SECONDS}s",))
    connection.commit()
