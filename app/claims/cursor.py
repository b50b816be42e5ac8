"""How far a process has come in a queue.

Entries of rows that were claimed stay in the index until vacuum, and a transaction held open elsewhere keeps vacuum
from removing them: a claim that began at the head of the queue would walk over all of them each time. So a process
remembers its place in each rank, begins there, and goes back to the head after a short batch and every second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy.engine import Row

from app.claims.model import Claimable, Lane

REWIND_SECONDS = 1.0
RANKS_KEPT = 64
#: Outside of every rank.
BEFORE_ALL, AFTER_ALL = -32768, 32768


@dataclass
class Cursor:
    """One for each queue and lane that a process takes from."""

    model: type[Claimable]
    queue: str
    lane: Lane = Lane.MAIN
    #: Each row is claimed together with what its model guards.
    guarded: bool = False
    #: The first and the last shard that are claimed from; None: all.
    shards: tuple[int, int] | None = None
    monotonic: Callable[[], float] = time.monotonic
    #: The ranks that this process knows to be in use, and its place in each; None: the head.
    positions: dict[int, datetime | None] = field(default_factory=lambda: {0: None})
    rewound: float = 0.0
    #: The queue had limits when it was last looked at.
    limited: bool = False

    def gaps(self) -> tuple[list[int], list[int]]:
        """Between the known ranks, where one may have come into use: lower and upper bounds, both outside."""
        known = sorted(self.positions)
        return [BEFORE_ALL, *known], [*known, AFTER_ALL]

    def advance(self, rows: Sequence[Row[Any]], want: int) -> None:
        for row in rows:
            self.positions[row.rank] = row.ready
        if len(rows) < want or self.monotonic() - self.rewound >= REWIND_SECONDS:
            self.rewind()

    def rewind(self) -> None:
        self.positions = dict.fromkeys(self.positions)
        self.rewound = self.monotonic()

    def learn(self, ranks: set[int]) -> None:
        """These are in use; of the others, the best are remembered."""
        self.positions = dict.fromkeys(ranks | set(sorted(self.positions)[:RANKS_KEPT]))
        self.rewound = self.monotonic()
