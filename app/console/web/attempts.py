"""How often somebody may try to sign in: so often by an address, and so often in all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: Tries that may fail at once, and the seconds after which there is one more.
ADDRESS, OVERALL = (10, 6.0), (100, 0.2)
#: Addresses that are remembered; a flood of others makes only the overall limit count.
MOST = 10_000


class Attempts:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._all = _Bucket(*OVERALL)
        self._by_address: dict[str, _Bucket] = {}

    def wait(self, address: str) -> float:
        """For how many seconds nobody there may try; 0: now."""
        now = self._monotonic()
        with self._lock:
            own = self._by_address.get(address)
            return max(self._all.wait(now), 0.0 if own is None else own.wait(now))

    def failed(self, address: str) -> None:
        now = self._monotonic()
        with self._lock:
            self._all.spend(now)
            if address not in self._by_address and len(self._by_address) >= MOST:
                self._by_address = {each: bucket for each, bucket in self._by_address.items() if not bucket.full(now)}
                if len(self._by_address) >= MOST:
                    return
            self._by_address.setdefault(address, _Bucket(*ADDRESS)).spend(now)


class _Bucket:
    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._left, self._at = float(most), 0.0

    def _refill(self, now: float) -> None:
        self._left = min(self._most, self._left + (now - self._at) / self._seconds)
        self._at = now

    def wait(self, now: float) -> float:
        self._refill(now)
        return 0.0 if self._left >= 1 else (1 - self._left) * self._seconds

    def spend(self, now: float) -> None:
        self._refill(now)
        self._left = max(0.0, self._left - 1)

    def full(self, now: float) -> bool:
        self._refill(now)
        return self._left >= self._most
