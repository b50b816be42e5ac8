"""The server as a whole: where it listens, with what, and how it ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import grpc

from app.errors import SettingsError
from app.hosts import refuse_open
from app.rpc.calls import Calls
from app.rpc.certificates import Certificates, Files
from app.rpc.gate import Gate
from app.rpc.open import Health, reflecting
from app.rpc.overseer import Overseer
from app.rpc.services import METHODS

log = logging.getLogger(__name__)
UNIX = "unix:"
#: What streams may take to end by themselves.
GOODBYE_SECONDS = 0.5
LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Options:
    listen: str
    tls: Files | None
    plaintext: bool
    max_message: int
    threads: int
    max_calls: int
    deadline: float
    reflection: bool

    def __post_init__(self) -> None:
        if self.tls is None and not self.plaintext and not self.listen.startswith(UNIX):
            refuse_open(self.listen.rpartition(":")[0], self.listen)


class Server:
    def __init__(self, options: Options) -> None:
        self.options = options
        services = sorted({each.service for each in METHODS})
        self._overseer = Overseer()
        self._calls = calls = Calls(Gate(), self._overseer, options.deadline)
        self._health = Health(calls, services, options.max_calls)
        self._pool = ThreadPoolExecutor(options.threads, "tidemill-rpc")
        self._server = grpc.server(self._pool, options=_channel(options), maximum_concurrent_rpcs=options.max_calls)
        handlers = [self._health.handler()]
        for service, methods in groupby(METHODS, attrgetter("service")):
            handlers.append(
                grpc.method_handlers_generic_handler(service, {each.name: calls.handler(each) for each in methods})
            )
        if options.reflection:
            handlers.append(reflecting(calls, self._overseer, services))
        self._server.add_generic_rpc_handlers(handlers)

    def start(self) -> str:
        """The address where it listens, with the port that was found where 0 was asked for."""
        options = self.options
        try:
            if options.tls is None:
                port = self._server.add_insecure_port(options.listen)
            else:
                port = self._server.add_secure_port(options.listen, Certificates(options.tls).credentials())
        except RuntimeError:
            raise SettingsError(
                f"{options.listen} cannot be listened on: it is taken, or no address of this machine; write HOST:PORT"
            ) from None
        self._overseer.start()
        self._server.start()
        if options.listen.startswith(UNIX):
            return options.listen
        return f"{options.listen.rpartition(':')[0]}:{port}"

    def stop(self, grace: float, hurry: Callable[[], bool] = lambda: False) -> bool:
        """No more calls; those that run may end. Whether all have."""
        self._health.leave()
        end = time.monotonic() + grace
        ended = self._server.stop(grace)
        if not ended.wait(min(grace, GOODBYE_SECONDS)):
            self._overseer.end_streams()
        while not ended.wait(LOOK_SECONDS) and time.monotonic() < end and not hurry():
            pass
        self._server.stop(None).wait(GOODBYE_SECONDS)
        self._overseer.stop()
        self._health.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        # What gRPC has cancelled may be in a query yet.
        return self._calls.are_over(GOODBYE_SECONDS)


def _channel(options: Options) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", options.max_message),
        # A second server on the same port would be given half of the calls, without a word.
        ("grpc.so_reuseport", 0),
        # A client that vanished without a word is noticed, and so is one that does not finish its handshake.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.server_handshake_timeout_ms", 10_000),
    ]
