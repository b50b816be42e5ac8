"""Our tasks: what a user of the product would write, and nothing more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from celery import shared_task

from bench import stamps
from tidemill import batched

if TYPE_CHECKING:
    from tidemill import Call


@shared_task
def noop() -> None:
    """Nothing: what is measured is everything around it."""


@shared_task
def stamp(number: int) -> None:
    now = time.time_ns()
    stamps.stamp(number, now)


@shared_task
@batched(size=500)
def track(calls: list[Call]) -> None:
    """Nothing, five hundred times at once."""
