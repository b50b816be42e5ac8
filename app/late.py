"""Tickets that come late, in the main process of a worker.

A ticket that was not taken in time is dropped, as whoever waits is rung for anew. But where tickets of many queues come
faster than slots are free, those of a queue may all be late when their turn comes; if each were dropped, nobody would
ever look into that queue. So one of them a second counts, for each queue: it costs one look, and finds all that waits.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from celery.worker.request import Request

from app.doorbell import TICKET

LOOK_SECONDS = 1.0
_looked_at: dict[str, float] = {}


class TicketRequest(Request):
    _counts: bool | None = None

    def maybe_expire(self) -> Literal[True] | None:
        """Asked more than once of the same ticket: what was let in stays in. Celery would keep the id of each that it
        drops for hours, to know it when it comes again; but then it is late again."""
        expires: datetime | None = self.expires
        late = expires is not None and datetime.now(UTC) > expires
        if late and self._counts is None:
            self._counts = TICKET in self.request_dict and _is_time_to_look(self.delivery_info)
        return True if late and not self._counts else None


def _is_time_to_look(delivery: Mapping[str, Any]) -> bool:
    queue, now = str(delivery.get("routing_key")), time.monotonic()
    if now < _looked_at.get(queue, 0.0):
        return False
    _looked_at[queue] = now + LOOK_SECONDS
    return True
