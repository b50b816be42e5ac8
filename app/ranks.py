"""Ranks: how urgent what waits is, smaller first; and the slots that are kept for some of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Rank: TypeAlias = int
#: Of a small integer: whoever waits may start.
ANY_RANK: Rank = 32_767


def most_rank(max_parallel: int | None, running: int, kept: Iterable[Rank]) -> Rank | None:
    """The largest rank that may be claimed now; None: nothing may.

    Whoever waits may start if a slot is left for it when each that is kept for a smaller rank is taken away.

    >>> most_rank(2, 1, [-10])  # the one free slot is for priority 10 and above
    -10
    """
    if max_parallel is None:
        return ANY_RANK
    free = max_parallel - running
    if free < 1:
        return None
    reserved = sorted(kept)
    return ANY_RANK if len(reserved) < free else reserved[free - 1]
