"""A user's module whose worker says every now and then how many timers its main process has."""

from __future__ import annotations

from typing import Any

from celery import signals

SECONDS = 0.2


@signals.worker_ready.connect(weak=False)
def _tell(sender: Any, **_: Any) -> None:
    def told() -> None:
        print(f"timers: {len(sender.timer.queue)}", flush=True)

    sender.timer.call_repeatedly(SECONDS, told)
