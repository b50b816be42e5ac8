"""Stopping work that has run out of time, or is no longer ours, from the outside.

One timer a process (`ITIMER_REAL`) and a handler that raises in the main thread, only while guarded code runs. If the
code swallows what was raised, or sits in C and never hears of it once the handler has run, the process ends after a
grace: its claim is then lost in the ordinary way, and recovered. Deadlines only ever move later, so a timer that fires
early finds nothing due and is set again.
"""

from __future__ import annotations

import faulthandler
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

GRACE_SECONDS = 5.0


class Stopped(BaseException):
    """Raised inside a task that must end now; not an `Exception`, so that `except Exception` does not eat it."""


class ClaimIsLost(Stopped):
    pass


class HandBack(Stopped):
    """The worker is stopping and its grace is over."""


class OutOfTime(Stopped):
    pass


class Ended(Stopped):
    """Raised by the work itself: it has said how it ends."""


Raise = Callable[[], BaseException]


class Alarm:
    """The deadlines of what runs now. `lease`: the dead man's switch of the claim; others belong to the call."""

    def __init__(self) -> None:
        self._deadlines: dict[str, tuple[float, Raise]] = {}
        self._guarding = False
        self._installed = False
        #: Asked at every alarm: whether the worker's grace is over, and what runs is to be handed back.
        self.hand_back: Callable[[], bool] = lambda: False

    def install(self) -> None:
        if not self._installed and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, self._ring)
            self._installed = True

    def set(self, name: str, at: float, error: Raise) -> None:
        """`at` on the monotonic clock."""
        self._deadlines[name] = (at, error)
        if self._guarding:
            self._arm()

    def later(self, name: str, at: float) -> None:
        """Safe from any thread: moves a deadline later, and leaves the timer to find out."""
        if name in self._deadlines:
            self._deadlines[name] = (at, self._deadlines[name][1])

    def clear(self, name: str) -> None:
        self._deadlines.pop(name, None)

    def now(self, name: str, error: Raise) -> None:
        """From another thread: stop what runs."""
        self._deadlines[name] = (0.0, error)
        if self._guarding and self._installed:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """What runs in the block may be stopped."""
        if self.hand_back():
            raise HandBack("the worker was stopped")
        self._guarding = True
        try:
            self._arm()
            yield
        finally:
            self._guarding = False
            if self._installed:
                signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.cancel_dump_traceback_later()

    def _arm(self) -> None:
        if self._installed and self._deadlines:
            first = min(at for at, _ in self._deadlines.values())
            signal.setitimer(signal.ITIMER_REAL, max(0.001, first - time.monotonic()))

    def _ring(self, _signal: int, _frame: FrameType | None) -> None:
        if not self._guarding:
            return
        if self.hand_back():
            self._deadlines["hand_back"] = (0.0, lambda: HandBack("the worker was stopped"))
        now = time.monotonic()
        due = sorted((at, name) for name, (at, _) in self._deadlines.items() if at <= now)
        if not due:
            self._arm()
            return
        _, error = self._deadlines.pop(due[0][1])
        stop = error()
        if isinstance(stop, Stopped):
            # Ends the process even where no Python runs any more.
            faulthandler.dump_traceback_later(GRACE_SECONDS, exit=True)
        self._arm()
        raise stop


alarm = Alarm()
