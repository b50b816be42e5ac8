"""The names that users import; everything else is inside."""

from __future__ import annotations

from app.db import Base, transaction
from app.errors import ClaimLost, TidemillError
from app.jobs import Ended, cancel, enqueue, enqueue_many, periodic, prioritize, rerun, retry, snooze, this_job, wait
from app.jobs.batches import Call, batched

__all__ = [
    "Base",
    "Call",
    "ClaimLost",
    "Ended",
    "TidemillError",
    "batched",
    "cancel",
    "enqueue",
    "enqueue_many",
    "periodic",
    "prioritize",
    "rerun",
    "retry",
    "snooze",
    "this_job",
    "transaction",
    "wait",
]
