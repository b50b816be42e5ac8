"""Reactive triggers: work that runs because data became fresher.

The names that tasks are written with are here; what a trigger means is in `triggers.trigger`, what a person does by
hand in `triggers.operate`.
"""

from __future__ import annotations

from triggers import ctl
from triggers.dsl import (
    caught_up,
    fresh,
    grown,
    new_chunk,
    new_day,
    new_hour,
    new_month,
    new_quarter,
    new_week,
    new_year,
    reached,
    same_chunk,
)
from triggers.pools import pool
from triggers.registration import reactive
from triggers.run import Run
from triggers.trigger import All, Any, ChunkDelay, ChunkDelta, ChunkRefDelay, CtlTrigger, Delay, Delta, RefDelay
from triggers.verdict import Verdict

__all__ = [
    "All",
    "Any",
    "ChunkDelay",
    "ChunkDelta",
    "ChunkRefDelay",
    "CtlTrigger",
    "Delay",
    "Delta",
    "RefDelay",
    "Run",
    "Verdict",
    "caught_up",
    "ctl",
    "fresh",
    "grown",
    "new_chunk",
    "new_day",
    "new_hour",
    "new_month",
    "new_quarter",
    "new_week",
    "new_year",
    "pool",
    "reached",
    "reactive",
    "same_chunk",
]
