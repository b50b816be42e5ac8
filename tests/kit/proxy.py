"""A TCP proxy that fails as networks do: connections that are cut, silent, half open, slow or lossy.

    with Proxy(postgres.port) as proxy:
        connect(proxy.port)
        proxy.cut()

It works in a thread of its own; whatever is asked of it has happened when the call returns.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

HOST = "127.0.0.1"
CHUNK = 65536
#: With it, closing a socket sends a reset instead of what is left and a goodbye.
_NO_LINGER = struct.pack("ii", 1, 0)


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()


class _Link:
    """A connection of a client, and that to the server which is made for it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client, self.server = client, server
        #: The server's side is gone, and nobody has told the client.
        self.half_open = False

    def reset(self) -> None:
        _reset(self.client)
        _reset(self.server)

    def lose_the_server(self) -> None:
        self.half_open = True
        _reset(self.server)

    def reset_half_open(self) -> None:
        if self.half_open:
            self.reset()


class Proxy:
    """Before `port` of this machine, on a port of its own, which stays the same whatever happens to the other."""

    def __init__(self, port: int, dice: random.Random | None = None) -> None:
        self._to = port
        self._dice = dice or random.Random()
        #: Seconds by which everything is later, each way.
        self.latency = 0.0
        #: Of what passes, the part that ends its connection instead.
        self.loss = 0.0
        self._links: set[_Link] = set()
        self._loop = asyncio.new_event_loop()
        self._speaking = asyncio.Event()
        self._speaking.set()
        self._over = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._over.set)
        self._thread.join()
        self._loop.close()

    @property
    def links(self) -> int:
        return len(self._links)

    def cut(self) -> None:
        """Every connection, on both sides."""
        self._each(_Link.reset)

    def silence(self) -> None:
        """Nothing passes any more. Connections stay; new ones are taken, and not answered."""
        self._do(self._speaking.clear)

    def speak(self) -> None:
        """After `silence`: what was held back arrives."""
        self._do(self._speaking.set)

    def half_open(self) -> None:
        """The server sees its connections end; the clients wait for answers that do not come. New ones work."""
        self._each(_Link.lose_the_server)

    def cut_half_open(self) -> None:
        """As the kernel does after `tcp_user_timeout`."""
        self._each(_Link.reset_half_open)

    def _each(self, act: Callable[[_Link], None]) -> None:
        def to_all() -> None:
            for link in list(self._links):
                act(link)

        self._do(to_all)

    def _do(self, act: Callable[[], None]) -> None:
        async def done() -> None:
            act()

        asyncio.run_coroutine_threadsafe(done(), self._loop).result()

    async def _run(self) -> None:
        server = await asyncio.start_server(self._serve, HOST, 0)
        self.port: int = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()
        served = asyncio.all_tasks() - {asyncio.current_task()}
        for each in served:
            each.cancel()
        await asyncio.gather(*served, return_exceptions=True)
        # Transports close themselves in the next turn.
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            await self._speaking.wait()
            back, server = await asyncio.open_connection(HOST, self._to)
        except BaseException as error:
            _reset(client)
            if isinstance(error, OSError | asyncio.CancelledError):
                return
            raise
        link = _Link(client, server)
        self._links.add(link)
        try:
            await asyncio.gather(self._pass_on(link, reader, server), self._pass_on(link, back, client))
        except asyncio.CancelledError:
            pass
        finally:
            link.reset()
            self._links.discard(link)

    async def _pass_on(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_client = writer is link.client
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                if self.latency:
                    await asyncio.sleep(self.latency)
                await self._speaking.wait()
                if self.loss and self._dice.random() < self.loss:
                    link.reset()
                elif not link.half_open:
                    writer.write(data)
                    await writer.drain()
        await self._speaking.wait()
        if not (link.half_open and to_client):
            writer.close()


def rerouted(url: str, port: int) -> str:
    """The same server, by the proxy on that port."""
    scheme, _, rest = url.partition("://")
    address, slash, path = rest.partition("/")
    return f"{scheme}://{address.rpartition(':')[0]}:{port}{slash}{path}"
