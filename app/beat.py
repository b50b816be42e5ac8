"""Beat's sign of life: a file that it touches whenever the broker took a message of it.

Beat has no connection to the database and listens nowhere, so there is nobody else to ask whether it still works.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from celery import signals

log = logging.getLogger(__name__)

#: Far more often than anybody looks, and far less often than messages are sent.
EVERY_SECONDS = 1.0


class Sign:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._touched = -EVERY_SECONDS

    def show(self, **_: Any) -> None:
        now = time.monotonic()
        if now - self._touched < EVERY_SECONDS:
            return
        self._touched = now
        try:
            self._path.touch()
        except OSError as error:
            # Beat's own work is not in danger; its probe will say that it sees nothing.
            log.error("TIDEMILL_BEAT_FILE: %s cannot be written: %s", self._path, error.strerror)


def show_at(path: Path | None) -> None:
    """From now on, in this process."""
    if path is not None:
        signals.after_task_publish.connect(Sign(path).show, weak=False)
