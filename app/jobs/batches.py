"""Tasks that take many jobs in one call: for what is called thousands of times a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.errors import BadRequest
from app.jobs.current import idempotency_key

#: The most jobs that one call takes.
MOST = 500


@dataclass(frozen=True, slots=True)
class Call:
    """One job of a batch, as a batched task gets it."""

    id: int
    args: list[Any]
    kwargs: dict[str, Any]
    attempt: int
    enqueued_at: datetime

    @property
    def idempotency_key(self) -> str:
        """As `this_job().idempotency_key` of a job that is run by itself."""
        return idempotency_key(self.id, self.enqueued_at)


Batched = Callable[[list[Call]], Any]


def batched(size: int = 100) -> Callable[[Batched], Batched]:
    """Under `@shared_task`: the function gets a list of up to `size` calls at a time, which end together.

    If it raises, each of them is tried again by itself, at no charge: one bad call never fails the others.
    """
    if type(size) is not int or not 1 <= size <= MOST:
        raise BadRequest(f"size={size!r} must be a whole number from 1 to {MOST}: write @batched(size=100)")

    def mark(function: Batched) -> Batched:
        function.tidemill_batch = size  # type: ignore[attr-defined]
        return function

    return mark


def size_of(run: Any) -> int:
    """How many jobs a call of this function takes; 0: one, in the ordinary way."""
    return int(getattr(run, "tidemill_batch", 0))
