"""How fast an operation goes, and when it had better stop. Pure.

- Items are taken in batches of a quarter of a second of the rate. What could not be taken because no pass came by is
  made up for, up to `BURST`; so the rate holds whoever makes the passes, and however many.
- What an item makes ready is handed out at the moment that the rate has for it, and a little later at random: what is
  done a hundred times a second does not come as a hundred at once (R11).
- Half of the last items failed, or half of what was restarted broke again: it stops, and says so.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from datetime import timedelta

BATCH = 100
BATCH_SECONDS = 0.25
#: Longer than the time between two passes.
BURST = timedelta(seconds=2)
#: What lags behind is spread over this time.
SPREAD_SECONDS = 1.0
#: Of so many at least it is said that half of them failed.
JUDGED = 20


class Fate(enum.StrEnum):
    """What came of an item, as far as it is known."""

    FAILED = "FAILED"
    #: What was restarted is broken again.
    BROKE_AGAIN = "BROKE_AGAIN"
    #: What was restarted has ended well.
    WELL = "WELL"
    #: It was done, and nothing more is known.
    OPEN = "OPEN"


def delays(rate: float | None, count: int, lag: float, random: Callable[[], float]) -> list[float]:
    """Seconds from now at which what each of these items makes ready is to be handed out. `lag`: how long ago the first
    was due."""
    if rate is None:
        return [0.0] * count
    return [max(0.0, SPREAD_SECONDS - lag + (turn + random()) / rate) for turn in range(count)]


def jumped(fates: Sequence[Fate]) -> str | None:
    """Why to stop; None: all is well enough. `fates`: the latest first, without what was skipped."""
    last = fates[:JUDGED]
    failed = last.count(Fate.FAILED)
    if len(last) == JUDGED and 2 * failed >= JUDGED:
        return f"{failed} of the last {JUDGED} items failed"
    known = [each for each in fates if each is not Fate.OPEN][:JUDGED]
    bad = JUDGED - known.count(Fate.WELL)
    if len(known) == JUDGED and 2 * bad >= JUDGED:
        return f"of the last {JUDGED} items of which it is known what came of them, {bad} failed or broke again"
    return None
