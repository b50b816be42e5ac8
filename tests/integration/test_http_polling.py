"""Waiting for an answer: who looks, how often, and for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.console.polling import FIRST_SECONDS, JITTER, Gone, Lookout


class Things:
    """What is looked for, and how often that was done."""

    def __init__(self) -> None:
        self.found: list[int] = []
        self.looks = self.at_once = self.most_at_once = 0

    async def look(self) -> int | None:
        self.looks += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.01)
        self.at_once -= 1
        return self.found.pop() if self.found else None


async def never() -> None:
    await asyncio.Event().wait()


def run(body: Callable[[Lookout, asyncio.Event, Things], Awaitable[None]]) -> None:
    async def made() -> None:
        stopping = asyncio.Event()
        await asyncio.wait_for(body(Lookout(stopping), stopping, Things()), 60)

    asyncio.run(made())


def test_of_many_that_wait_for_the_same_one_looks() -> None:
    async def body(lookout: Lookout, stopping: asyncio.Event, things: Things) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        waiting = [asyncio.ensure_future(lookout.wait("a", 2, things.look, never)) for _ in range(200)]
        # Each looks for itself once, when it comes.
        while things.looks < 200:
            await asyncio.sleep(0.01)
        things.most_at_once = 0
        assert await asyncio.gather(*waiting) == [None] * 200
        assert things.most_at_once == 1
        assert things.looks - 200 <= (loop.time() - begun) / (FIRST_SECONDS * (1 - JITTER)) + 1

    run(body)


def test_what_comes_goes_to_as_many_as_there_are() -> None:  # P10
    async def body(lookout: Lookout, stopping: asyncio.Event, things: Things) -> None:
        waiting = [asyncio.ensure_future(lookout.wait("a", 50, things.look, never)) for _ in range(20)]
        other = asyncio.ensure_future(lookout.wait("b", 50, Things().look, never))
        while things.looks < 20:
            await asyncio.sleep(0.01)
        things.found = list(range(20))
        assert sorted(each or 0 for each in await asyncio.gather(*waiting)) == list(range(20))
        assert not other.done()
        stopping.set()
        assert await other is None

    run(body)


def test_for_one_that_has_gone_nobody_looks() -> None:
    async def body(lookout: Lookout, stopping: asyncio.Event, things: Things) -> None:
        async def at_once() -> None:
            return

        things.found = [1]
        with pytest.raises(Gone):
            await lookout.wait("a", 50, things.look, at_once)
        assert (things.looks, things.found) == (0, [1])
        leaving = asyncio.Event()

        async def later() -> None:
            await leaving.wait()

        things.found = []
        waiting = asyncio.ensure_future(lookout.wait("a", 50, things.look, later))
        while not things.looks or things.at_once:
            await asyncio.sleep(0.001)
        leaving.set()
        things.found, looks = [2], things.looks
        with pytest.raises(Gone):
            await waiting
        assert (things.looks - looks, things.found) == (0, [2])
        assert lookout._places == {}

    run(body)


def test_an_error_while_it_waits_is_told() -> None:
    async def body(lookout: Lookout, stopping: asyncio.Event, things: Things) -> None:
        async def look() -> None:
            await things.look()
            if things.looks == 2:
                raise OSError("away")

        with pytest.raises(OSError, match="away"):
            await lookout.wait("a", 50, look, never)
        assert lookout._places == {}

    run(body)
