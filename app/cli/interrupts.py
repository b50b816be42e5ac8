"""Ctrl-C and SIGTERM while services run: the first asks to stop, the second to hurry."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Until `patient()` is called, a signal ends the block that runs, as Ctrl-C usually does."""

    def __init__(self) -> None:
        self._count = 0
        self._patient = False
        self._told = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.signal(number, self._on_signal) for number in NUMBERS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stop()
        if not self._patient:
            self._patient = True  # what is being left must be able to clean up
            raise KeyboardInterrupt

    def patient(self) -> None:
        self._patient = True

    def stop(self) -> None:
        """As a first signal does."""
        self._count += 1
        self._told.set()

    def wait(self, seconds: float) -> bool:
        """Whether to stop."""
        return self._told.wait(seconds)

    def hurry(self) -> bool:
        return self._count > 1
