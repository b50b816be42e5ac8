"""A clock that tests turn by hand."""

from __future__ import annotations


class FakeClock:
    """An `app.clock.Clock`: `sleep` returns at once, and the time has passed."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def advance(self, seconds: float) -> None:
        self.now += seconds
