"""Tasks that compare with the time now. They would run again and again while that holds, so they say how often."""

from __future__ import annotations

from tidemill import ChunkDelay, Run, fresh, reached, reactive
from warehouse.models import Note
from warehouse.pools import WATCH


def note(run: Run, text: str) -> None:
    with run.transaction() as session:
        session.add(Note(task=run.task, text=text))


@reactive(fresh("live.stock", "counted_at", within="5s"), pool=WATCH, priority=5, min_interval="5s", on_lapse="run")
def stock(run: Run) -> None:
    """While the shelves are being counted. Also when the count has stopped before a worker came to it."""
    note(run, f"counted at {run.value('live.stock', 'counted_at')}")


@reactive(reached("live.events", "seen_at", "day"), pool=WATCH, min_interval="10s")
def today(run: Run) -> None:
    """There is something of today."""
    note(run, f"events up to {run.value('live.events', 'seen_at')}")


@reactive(ChunkDelay("mart.daily_sales", "built_to", "year", 2), pool=WATCH, min_interval="15s")
def nearly_caught_up(run: Run) -> None:
    """The most important mart is of this year, or of one of the two before."""
    note(run, f"daily sales up to {run.value('mart.daily_sales', 'built_to')}")
