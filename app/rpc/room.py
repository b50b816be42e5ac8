"""Threads for calls that are open to all, and a bound on how many of these wait for one.

What waits counts against `--max-calls`, which is for those who have a token: so what there is no room for is handed to
a thread that does nothing but refuse.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_refuser = threading.local()


def is_full() -> bool:
    """Asked by a call that has just begun: there was no room for it."""
    return bool(getattr(_refuser, "here", False))


def _refuse_here() -> None:
    _refuser.here = True


# gRPC takes nothing else for a pool of threads.
class Room(ThreadPoolExecutor):
    def __init__(self, threads: int, most: int, name: str) -> None:
        super().__init__(min(threads, most), name)
        self._left = threading.Semaphore(most)
        self._refusing = ThreadPoolExecutor(1, f"{name}-full", initializer=_refuse_here)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if not self._left.acquire(blocking=False):
            return self._refusing.submit(fn, *args, **kwargs)
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._leave)
        return future

    def _leave(self, _future: Future[Any]) -> None:
        self._left.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001 - as it is inherited
        super().shutdown(wait, cancel_futures=cancel_futures)
        self._refusing.shutdown(wait, cancel_futures=cancel_futures)
