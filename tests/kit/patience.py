"""A user's module: a scheduler that imports it makes each pass once, and would wait twenty minutes for what comes next.
Not for the process of the tests."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from app import scheduler
from app.registry import Pass
from app.scheduler import Share

PAUSE = timedelta(minutes=20)
_passes = scheduler.passes


def _seldom(share: Share | None = None) -> list[Pass]:
    return [replace(each, interval=PAUSE) for each in _passes(share)]


scheduler.passes = _seldom
scheduler.JOIN_SECONDS = PAUSE.total_seconds()
