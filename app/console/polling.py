"""Waiting for an answer without a thread and without a connection: it is looked for, again and again, while the client
is there.

Of those who wait for the same thing, one looks for all: a thousand waiting clients cost the database what one does.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

#: Between two looks; it grows from the one to the other.
FIRST_SECONDS, MOST_SECONDS = 0.25, 0.8
GROWS = 1.3
JITTER = 0.2

T = TypeVar("T")


class Gone(Exception):
    """The client has hung up: nobody is there to be told."""


@dataclass
class _Place:
    """Where clients wait for the same thing."""

    waiting: int = 0
    #: On the clock of the loop: when somebody has looked in vain.
    empty_at: float = -math.inf
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Lookout:
    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self._places: dict[str, _Place] = {}

    async def wait(
        self,
        name: str,
        seconds: float,
        look: Callable[[], Awaitable[T | None]],
        gone: Callable[[], Awaitable[None]],
    ) -> T | None:
        """What `look` finds; None when the time is over or the server stops; `Gone` when the client has hung up."""
        loop = asyncio.get_running_loop()
        end, pause = loop.time() + seconds, FIRST_SECONDS
        ending = asyncio.ensure_future(gone())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            # So that `ending` has begun to listen.
            await asyncio.sleep(0)
            found = await self._look(look, ending)
            async with self._place(name) as place:
                while found is None and (left := end - loop.time()) > 0 and not stopping.done():
                    jitter = random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
                    await asyncio.wait(
                        {ending, stopping}, timeout=min(left, pause * jitter), return_when=asyncio.FIRST_COMPLETED
                    )
                    if stopping.done():
                        return None
                    found = await self._look_for_all(place, look, ending)
                    pause = min(pause * GROWS, MOST_SECONDS)
                return found
        finally:
            ending.cancel()
            stopping.cancel()

    @asynccontextmanager
    async def _place(self, name: str) -> AsyncIterator[_Place]:
        place = self._places.setdefault(name, _Place())
        place.waiting += 1
        try:
            yield place
        finally:
            place.waiting -= 1
            if not place.waiting:
                del self._places[name]

    async def _look_for_all(
        self, place: _Place, look: Callable[[], Awaitable[T | None]], ending: asyncio.Future[None]
    ) -> T | None:
        loop = asyncio.get_running_loop()
        async with place.lock:
            if loop.time() - place.empty_at < FIRST_SECONDS * (1 - JITTER):
                return None
            found = await self._look(look, ending)
            if found is None:
                place.empty_at = loop.time()
        return found

    async def _look(self, look: Callable[[], Awaitable[T | None]], ending: asyncio.Future[None]) -> T | None:
        if ending.done():
            raise Gone
        return await look()
