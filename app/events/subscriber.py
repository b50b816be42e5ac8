"""A subscriber: the events of its queue, one after the other, for as long as it likes."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from app.events.event import Event, Malformed, read
from app.events.sources import WAIT_SECONDS, Lost, Source, Taken, connection, errors, open_source
from app.events.subscriptions import check
from app.outbox.broker import PASSING, PREFIX, remove
from app.settings import settings

log = logging.getLogger(__name__)

AWAY_SECONDS, AWAY_MOST_SECONDS = 0.5, 5.0


class Subscriber:
    """`for event in subscriber:` gives event after event, each when the last one is acknowledged: by `event.ack()`, or
    by asking for the next. What the body of the loop raises leaves the event unacknowledged, and it comes again.

    Any number may run under one name; one works, the others stand by. Connects when it is first asked, and again
    whenever the broker was away. Ends after `timeout` seconds without an event, or when told to `stop`.
    """

    def __init__(
        self,
        name: str,
        *patterns: str,
        url: str | None = None,
        timeout: float | None = None,
    ) -> None:
        check(name, patterns)
        self.name, self.patterns, self._timeout = name, patterns, timeout
        self._passing = f"{PREFIX}{name}".startswith(PASSING)
        self._url = url or settings().resolved_events_url()
        self._stopped = threading.Event()
        self._connection: Any = None
        self._source: Source | None = None
        self._current: Taken | None = None
        self._pause = AWAY_SECONDS

    @classmethod
    def passing(cls, *patterns: str, url: str | None = None, timeout: float | None = None) -> Self:
        """Gets what is published from now on, and leaves nothing behind."""
        return cls(f"{PASSING.removeprefix(PREFIX)}{uuid.uuid4()}", *patterns, url=url, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        while (event := self.get(self._timeout)) is not None:
            yield event
            event.ack()

    def stop(self) -> None:
        """From another thread or a signal handler: the loop ends after the current event, or within a second."""
        self._stopped.set()

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event; None when none came in time, or when stopped. What is not acknowledged comes again."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._stopped.is_set():
            left = WAIT_SECONDS if end is None else min(WAIT_SECONDS, end - time.monotonic())
            if (taken := self._take(max(0.0, left))) is not None and (event := self._read(taken)) is not None:
                return event
            if end is not None and time.monotonic() >= end:
                return None
        return None

    def close(self) -> None:
        if self._passing and self._connection is not None:
            self._end()
        self._disconnect()

    def _take(self, seconds: float) -> Taken | None:
        try:
            if self._source is None:
                self._connection = self._connection or connection(self._url)
                self._source = open_source(self._connection, self.name, self.patterns)
            if self._current is not None:
                # It was not acknowledged: only a new consumer gets it again.
                self._disconnect()
                return None
            self._current = self._source.take(seconds)
        except Lost as error:
            log.info("subscriber %s: %s", self.name, error)
            self._disconnect()
        except self._errors() as error:
            # Without its text, in which some brokers repeat the URL.
            log.warning("subscriber %s: no broker (%s); again in %.1f s", self.name, type(error).__name__, self._pause)
            self._disconnect()
            self._stopped.wait(min(self._pause, max(seconds, 0.05)))
            self._pause = min(self._pause * 2, AWAY_MOST_SECONDS)
        else:
            self._pause = AWAY_SECONDS
            return self._current
        return None

    def _errors(self) -> tuple[type[BaseException], ...]:
        return (OSError,) if self._connection is None else errors(self._connection)

    def _read(self, taken: Taken) -> Event | None:
        try:
            return read(taken.body, lambda: self._ack(taken))
        except Malformed as error:
            log.warning("subscriber %s drops what is no event: %s", self.name, error)
            self._finish(taken, drop=True)
            return None

    def _ack(self, taken: Taken) -> None:
        if taken is self._current:
            self._finish(taken)

    def _finish(self, taken: Taken, *, drop: bool = False) -> None:
        """Where the broker does not hear of it, the event comes again."""
        self._current = None
        if self._source is None:
            return
        try:
            (self._source.drop if drop else self._source.ack)(taken)
        except self._errors() as error:
            log.info("subscriber %s: an event comes again (%s)", self.name, type(error).__name__)
            self._disconnect()

    def _end(self) -> None:
        try:
            remove(self._connection.default_channel, self.name)
        except self._errors():
            log.info("the queue of %s is left to its time limit", self.name)

    def _disconnect(self) -> None:
        source, self._source, self._current = self._source, None, None
        found, self._connection = self._connection, None
        for each in (source, found):
            if each is not None:
                with suppress(OSError, *errors(found)):
                    each.close()
