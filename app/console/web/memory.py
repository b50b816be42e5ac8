"""What was read for one who looks is shown to others who look at the same moment."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
#: Of the time, no more than one part in so many is spent on reading it again.
SHARE = 10
#: Keys of which something is remembered.
MOST = 200


_all: list[Remembered[Any] | RememberedBy[Any, Any]] = []


def forget_all() -> None:
    """Where the database is another one now, and after something was changed."""
    for each in _all:
        each.forget()


class Remembered(Generic[T]):
    """Read at most every `seconds`, or less often where reading it takes long; one thread reads for all."""

    def __init__(self, read: Callable[[], T], seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._read, self._seconds, self._monotonic = read, seconds, monotonic
        self._lock = threading.Lock()
        self._found: T | None = None
        self._until = float("-inf")

    def kept(self) -> Remembered[T]:
        """From now on it is forgotten with all others."""
        _all.append(self)
        return self

    def get(self) -> T:
        with self._lock:
            begun = self._monotonic()
            if self._found is None or begun >= self._until:
                self._found = self._read()
                end = self._monotonic()
                self._until = end + max(self._seconds, (end - begun) * SHARE)
            return self._found

    def forget(self) -> None:
        with self._lock:
            self._found = None


class RememberedBy(Generic[K, T]):
    """The same for each key; of those that were asked for last."""

    def __init__(self, read: Callable[[K], T], seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._read, self._seconds, self._monotonic = read, seconds, monotonic
        self._lock = threading.Lock()
        self._known: OrderedDict[K, Remembered[T]] = OrderedDict()

    def kept(self) -> RememberedBy[K, T]:
        _all.append(self)
        return self

    def get(self, key: K) -> T:
        with self._lock:
            if key not in self._known:
                self._known[key] = Remembered(lambda: self._read(key), self._seconds, self._monotonic)
            self._known.move_to_end(key)
            if len(self._known) > MOST:
                self._known.popitem(last=False)
            found = self._known[key]
        return found.get()

    def forget(self) -> None:
        with self._lock:
            self._known.clear()
