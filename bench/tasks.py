"""Our tasks: what a user of the product would write, and nothing more."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import TYPE_CHECKING

import redis
from celery import shared_task

from tidemill import batched

if TYPE_CHECKING:
    from tidemill import Call


@cache
def stamps() -> redis.Redis:
    """Made in the child on its first call, like the peers'; where a task writes when it began."""
    return redis.Redis.from_url(os.environ["BENCH_STAMPS_URL"])


@shared_task
def noop() -> None:
    """Nothing: what is measured is everything around it."""


@shared_task
def stamp(number: int) -> None:
    now = time.time_ns()
    stamps().rpush("bench.stamps", f"{number}:{now}")


@shared_task
@batched(size=500)
def track(calls: list[Call]) -> None:
    """Nothing, five hundred times at once."""
