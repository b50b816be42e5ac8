"""The proxy of the kit fails as it says, and only then."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from app.embedded.server import free_port
from tests.kit.proxy import HOST, Proxy, rerouted
from tests.kit.waiting import wait_until


class _Echo(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    ended = 0


class _Repeat(socketserver.BaseRequestHandler):
    server: _Echo

    def handle(self) -> None:
        with suppress(OSError):
            while data := self.request.recv(1000):
                self.request.sendall(data)
        self.server.ended += 1


@pytest.fixture
def echo() -> Iterator[_Echo]:
    with _Echo((HOST, 0), _Repeat) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: _Echo) -> Iterator[Proxy]:
    with Proxy(echo.server_address[1]) as found:
        yield found


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with _connect(proxy) as found:
        assert _ask(found) == b"hello"
        yield found


def _connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), timeout=60)


def _ask(client: socket.socket, words: bytes = b"hello") -> bytes:
    client.sendall(words)
    return client.recv(1000)


def _is_silent(client: socket.socket) -> bool:
    client.settimeout(0.05)
    try:
        client.recv(1000)
    except TimeoutError:
        return True
    finally:
        client.settimeout(60)
    return False


def test_it_passes_on_what_both_say(proxy: Proxy, client: socket.socket, echo: _Echo) -> None:
    assert _ask(client, b"more") == b"more"
    assert proxy.links == 1
    client.close()
    wait_until(lambda: echo.ended == 1 and proxy.links == 0)


def test_cut_ends_both_sides_and_new_connections_work(proxy: Proxy, client: socket.socket, echo: _Echo) -> None:
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1000)
    wait_until(lambda: echo.ended == 1)
    with _connect(proxy) as again:
        assert _ask(again) == b"hello"


def test_silence_holds_back_and_loses_nothing(proxy: Proxy, client: socket.socket) -> None:
    proxy.silence()
    client.sendall(b"held back")
    with _connect(proxy) as late:
        late.sendall(b"also")
        assert _is_silent(client)
        assert _is_silent(late)
        proxy.speak()
        assert client.recv(1000) == b"held back"
        assert late.recv(1000) == b"also"


def test_half_open_tells_the_server_only(proxy: Proxy, client: socket.socket, echo: _Echo) -> None:
    proxy.half_open()
    wait_until(lambda: echo.ended == 1)
    client.sendall(b"is there anybody?")
    assert _is_silent(client)
    with _connect(proxy) as other:
        assert _ask(other) == b"hello"
        proxy.cut_half_open()
        with pytest.raises(ConnectionResetError):
            client.recv(1000)
        assert _ask(other) == b"hello"


def test_latency_counts_each_way(proxy: Proxy, client: socket.socket) -> None:
    proxy.latency = 0.05
    begun = time.monotonic()
    assert _ask(client) == b"hello"
    assert time.monotonic() - begun >= 0.1


def test_loss_ends_a_connection(proxy: Proxy, client: socket.socket) -> None:
    proxy.loss = 1.0
    with pytest.raises(ConnectionResetError):
        _ask(client)
    proxy.loss = 0.0
    with _connect(proxy) as again:
        assert _ask(again) == b"hello"


def test_a_server_that_is_away_is_seen_as_away() -> None:
    with Proxy(free_port()) as proxy, pytest.raises(ConnectionResetError), _connect(proxy) as client:
        client.recv(1000)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql+psycopg2://me:pw@127.0.0.1:5432/db", "postgresql+psycopg2://me:pw@127.0.0.1:7/db"),
        ("redis://:pw@127.0.0.1:6379/0", "redis://:pw@127.0.0.1:7/0"),
    ],
)
def test_rerouted(url: str, expected: str) -> None:
    assert rerouted(url, 7) == expected
