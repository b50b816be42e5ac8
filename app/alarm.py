"""Stopping work that has run out of time, or is no longer ours, from the outside.

One timer a process (`ITIMER_REAL`) and a handler that raises in the main thread, only while guarded code runs. If the
code swallows what was raised, or sits in C and never hears of it once the handler has run, the process ends after a
grace: its claim is then lost in the ordinary way, and recovered. Deadlines only ever move later, so a timer that fires
early finds nothing due and is set again.

For many short calls in a row, setting the timer for each would cost more than the calls: on patrol it rings all the
time, and a call only says until when it may last.
"""

from __future__ import annotations

import faulthandler
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

GRACE_SECONDS = 5.0
#: How much later than its deadline a call may be stopped on patrol.
PATROL_SECONDS = 0.05


T = TypeVar("T")


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
        self._patrolling = False
        self._ending = False
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
        self._guarding = True
        try:
            self._refuse()
            self._arm()
            yield
        finally:
            self._guarding = False
            if not self._patrolling:
                self._disarm()
            self._reprieve()

    @contextmanager
    def patrol(self) -> Iterator[None]:
        """`call` costs little in this block."""
        self._patrolling = True
        try:
            self._arm()
            yield
        finally:
            self._patrolling = self._guarding = False
            self._disarm()

    def call(self, until: float, error: Raise, function: Callable[..., T], *arguments: Any) -> T:
        """On patrol: calls it, and stops it with `error` when its time is over; `until` on the monotonic clock."""
        self._refuse()
        self._deadlines["hard"] = (until, error)
        self._guarding = True
        try:
            return function(*arguments)
        finally:
            self._guarding = False
            self._deadlines.pop("hard", None)
            if self._ending:
                self._reprieve()

    def _refuse(self) -> None:
        """Nothing begins when it is too late for it: this process may have stood still, and its timer with it."""
        if self.hand_back():
            raise HandBack("the worker was stopped")
        now = time.monotonic()
        # Another thread may add one at any moment.
        for name, (at, error) in list(self._deadlines.items()):
            if at <= now:
                self._deadlines.pop(name, None)
                raise error()

    def _disarm(self) -> None:
        if self._installed:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _reprieve(self) -> None:
        self._ending = False
        faulthandler.cancel_dump_traceback_later()

    def _arm(self) -> None:
        if not self._installed:
            return
        wait = min((at for at, _ in list(self._deadlines.values())), default=math.inf) - time.monotonic()
        if self._patrolling:
            wait = min(wait, PATROL_SECONDS)
        if wait < math.inf:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, wait))

    def _ring(self, _signal: int, _frame: FrameType | None) -> None:
        if not self._guarding:
            if self._patrolling:
                signal.setitimer(signal.ITIMER_REAL, PATROL_SECONDS)
            return
        if self.hand_back():
            self._deadlines["hand_back"] = (0.0, lambda: HandBack("the worker was stopped"))
        now = time.monotonic()
        due = sorted((at, name) for name, (at, _) in list(self._deadlines.items()) if at <= now)
        if not due:
            self._arm()
            return
        _, error = self._deadlines.pop(due[0][1])
        stop = error()
        if isinstance(stop, Stopped):
            # Ends the process even where no Python runs any more.
            self._ending = True
            faulthandler.dump_traceback_later(GRACE_SECONDS, exit=True)
        self._arm()
        raise stop


alarm = Alarm()
