"""Calls of a service: channels of this process, made when they are first needed, kept, and never carried over a fork.

- Calls go round over the addresses; one that did not answer is passed over for a while, as long as there is another.
- A call that found nobody is made once more, elsewhere if there is an elsewhere, within the same time: but only if it
  is pure. `Saved` is not.
- `there`: a call goes where the last one was answered, and nowhere else.
- A channel that failed is forgotten: the next call connects anew, with the certificates as they are then.
- Of each channel it is known which calls the service does not have (`lacks`).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from app.errors import RemoteFailed
from stages.remote.service import Remote, Tls

if TYPE_CHECKING:
    import grpc

UNAVAILABLE, DEADLINE, UNAUTHENTICATED = "UNAVAILABLE", "DEADLINE_EXCEEDED", "UNAUTHENTICATED"
UNIMPLEMENTED = "UNIMPLEMENTED"
#: After these the connection may be one to nowhere.
_GONE = (UNAVAILABLE, DEADLINE, UNAUTHENTICATED)
#: How long an address that did not answer is passed over: doubled by each failure.
SHUNNED_SECONDS, SHUNNED_MOST = 0.5, 30.0
DETAILS_MOST = 300
#: What is left to the second try of a call, at least.
LEAST_SECONDS = 0.1
_KEPT_ALIVE = [
    # A peer that vanished without a word: what was sent and is not acknowledged ends the connection.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Each channel connects for itself: one made anew must not wait for the pauses of the one before.
    ("grpc.use_local_subchannel_pool", 1),
    # The addresses say where to go.
    ("grpc.enable_http_proxy", 0),
]


@dataclass
class _Shunned:
    until: float = 0.0
    failures: int = 0


@dataclass
class Client:
    """Of one stage, in one process."""

    remote: Remote
    _stubs: dict[str, tuple[grpc.Channel, Any]] = field(default_factory=dict)
    _shunned: dict[str, _Shunned] = field(default_factory=dict)
    #: The calls that are not there, by address.
    _lacking: dict[str, set[str]] = field(default_factory=dict)
    _turn: int = 0
    _answered: str | None = None

    @cached_property
    def _token(self) -> _Token | None:
        return None if self.remote.token_file is None else _Token(self.remote.token_file)

    def call(self, method: str, request: Any, seconds: float, *, pure: bool = True, there: bool = False) -> Any:
        """The response, or `RemoteFailed`."""
        end = time.monotonic() + seconds
        address = self._answered if there and self._answered else self._next()
        try:
            return self._once(address, method, request, seconds)
        except RemoteFailed as error:
            if not pure or there or error.status != UNAVAILABLE:
                raise
        return self._once(self._next(), method, request, max(LEAST_SECONDS, end - time.monotonic()))

    def elsewhere(self) -> bool:
        """Whether there is an address that has not failed since it was last heard of."""
        return len(self._shunned) < len(set(self.remote.addresses))

    def lacks(self, method: str) -> bool:
        """Whether none of those that were called has it, as far as is known."""
        return bool(self._stubs) and all(method in self._lacking.get(each, ()) for each in self._stubs)

    def close(self) -> None:
        for channel, _ in self._stubs.values():
            channel.close()
        self._stubs.clear()
        self._lacking.clear()

    def _next(self) -> str:
        """In turn; those that did not answer lately come last, the longest known first."""
        self._turn += 1
        there, now = self.remote.addresses, time.monotonic()
        order = [there[(self._turn + step) % len(there)] for step in range(len(there))]
        return min(order, key=lambda each: max(now, self._shunned[each].until) if each in self._shunned else now)

    def _once(self, address: str, method: str, request: Any, seconds: float) -> Any:
        # Not at the top: it takes time and memory, and most processes call nobody.
        import grpc

        token = self._read_token(address)
        metadata = None if token is None else (("authorization", f"Bearer {token}"),)
        future = getattr(self._stub(address), method).future(request, timeout=seconds, metadata=metadata)
        try:
            response = future.result()
        except grpc.RpcError as error:
            failed = self._failed(address, error, token)
            if failed.status == UNIMPLEMENTED:
                self._lacking.setdefault(address, set()).add(method)
            raise failed from None
        except BaseException:
            # This process is told to stop: the service need not go on.
            future.cancel()
            raise
        self._shunned.pop(address, None)
        self._answered = address
        if address in self._lacking:
            self._lacking[address].discard(method)
        return response

    def _read_token(self, address: str) -> str | None:
        if self._token is None:
            return None
        try:
            return self._token.read()
        except (OSError, ValueError) as error:
            why = f"the token file {self._token.path} cannot be read: {getattr(error, 'strerror', None) or error}"
            raise RemoteFailed(self.remote.whole_name, address, UNAUTHENTICATED, why) from None

    def _failed(self, address: str, error: Any, token: str | None) -> RemoteFailed:
        code = error.code()
        status = "UNKNOWN" if code is None else str(code.name)
        details = " ".join(str(error.details() or "").split())
        if token:
            details = details.replace(token, "…")
        if status in _GONE:
            self._forget(address)
        if status in (UNAVAILABLE, DEADLINE):
            shunned = self._shunned.setdefault(address, _Shunned())
            shunned.until = time.monotonic() + min(SHUNNED_MOST, SHUNNED_SECONDS * 2**shunned.failures)
            shunned.failures = min(shunned.failures + 1, 10)
        return RemoteFailed(self.remote.whole_name, address, status, details[:DETAILS_MOST])

    def _forget(self, address: str) -> None:
        self._lacking.pop(address, None)
        if (found := self._stubs.pop(address, None)) is not None:
            found[0].close()

    def _stub(self, address: str) -> Any:
        from app.proto.tidemill.v1 import stage_pb2_grpc

        if address not in self._stubs:
            channel = self._channel(address)
            self._stubs[address] = channel, cast(Any, stage_pb2_grpc).StageStub(channel)
        return self._stubs[address][1]

    def _channel(self, address: str) -> grpc.Channel:
        import grpc

        most, tls = self.remote.max_message, self.remote.tls
        options: list[tuple[str, Any]] = [
            *_KEPT_ALIVE,
            ("grpc.max_send_message_length", most),
            ("grpc.max_receive_message_length", most),
        ]
        if tls is None:
            return grpc.insecure_channel(address, options)
        if tls.server_name is not None:
            options.append(("grpc.ssl_target_name_override", tls.server_name))
        try:
            return grpc.secure_channel(address, _credentials(tls), options)
        except OSError as error:
            # They were there when the service started.
            why = f"{error.filename} cannot be read: {error.strerror or error}"
            raise RemoteFailed(self.remote.whole_name, address, UNAUTHENTICATED, why) from None


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    import grpc

    files = (None if each is None else each.read_bytes() for each in (tls.ca_file, tls.key_file, tls.cert_file))
    return grpc.ssl_channel_credentials(*files)


class _Token:
    """The text of a file, read again when that has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: tuple[int, int, int] | None = None
        self._text = ""

    def read(self) -> str:
        found = self.path.stat()
        seen = (found.st_mtime_ns, found.st_size, found.st_ino)
        if seen != self._known:
            text = self.path.read_text().strip()
            if not text.isascii() or not text.isprintable() or not text:
                raise ValueError("it must hold one line of visible characters")
            self._text, self._known = text, seen
        return self._text


_clients: dict[Remote, Client] = {}


def client_of(remote: Remote) -> Client:
    if remote not in _clients:
        _clients[remote] = Client(remote)
    return _clients[remote]


def warm_up() -> None:
    """What every child would load for itself, before it is made."""
    import_module("app.proto.tidemill.v1.stage_pb2_grpc")


# What a parent has opened is not the child's to close, either.
os.register_at_fork(after_in_child=_clients.clear)
