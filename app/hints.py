"""What wakes a loop before its time: being told to stop, and a hint of the database that there is something to follow.

A hint may be lost, and none comes through a pooler that shares sessions: whoever waits for one polls as well.
"""

from __future__ import annotations

import logging
import os
import select
import time
from contextlib import suppress
from typing import Any

from sqlalchemy.engine import Engine

from app.db import new_engine
from app.settings import settings

log = logging.getLogger(__name__)

CHANNEL = "tidemill_ctl"
AWAY_SECONDS = 1.0


class Stop:
    """Like an event; to set it takes no lock, so that a signal handler may."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._set = False

    def set(self) -> None:
        self._set = True
        with suppress(BlockingIOError):
            os.write(self._write, b".")

    def is_set(self) -> bool:
        return self._set

    def fileno(self) -> int:
        return self._read

    def wait(self, seconds: float) -> bool:
        select.select([self], [], [], max(0.0, seconds))
        return self._set


class Hints:
    """Waits for a hint, on a connection of its own."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._engine: Engine | None = None
        self._connection: Any = None
        self._away_until = 0.0

    def wait(self, seconds: float) -> bool:
        """Until the time is over, or earlier when there is a hint (then True), or the order to stop."""
        connection = self._listening()
        if connection is None:
            self._stop.wait(seconds)
            return False
        ready, _, _ = select.select([self._stop, connection], [], [], max(0.0, seconds))
        return connection in ready and self._take(connection)

    def _take(self, connection: Any) -> bool:
        try:
            connection.poll()
        except Exception as error:  # noqa: BLE001 - the driver's own errors, of which none may end the loop
            log.info("no hints for a moment: %s", str(error).strip())
            self.close()
            return False
        found = bool(connection.notifies)
        connection.notifies.clear()
        return found

    def _listening(self) -> Any:
        if self._connection is None and time.monotonic() >= self._away_until:
            try:
                if self._engine is None:
                    self._engine = new_engine(settings().resolved_database_url(), pool_size=1, name="tidemill-hints")
                pooled = self._engine.raw_connection()
                driver: Any = pooled.driver_connection
                pooled.detach()
                driver.autocommit = True
                with driver.cursor() as cursor:
                    cursor.execute(f"LISTEN {CHANNEL}")
                self._connection = driver
            except Exception as error:  # noqa: BLE001 - also the driver's own: no hint is worth the loop
                log.debug("cannot listen: %s", error)
                self._away_until = time.monotonic() + AWAY_SECONDS
        return self._connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._away_until = time.monotonic() + AWAY_SECONDS
        if connection is not None:
            with suppress(Exception):
                connection.close()
