"""What a simulation found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from triggers.instants import Instant
from triggers.verdict import Parameter

#: Of each parameter: last seen, and the value that was checked.
Window = tuple[tuple[Parameter, Instant | None, Instant | None], ...]


class Launch(NamedTuple):
    """A run. `ended_at` None: it was not over at the end of the simulation. `outcome`: done, failed, running."""

    task: str
    pool: str
    fired_at: Instant
    started_at: Instant
    ended_at: Instant | None
    outcome: str
    attempts: int
    window: Window

    @property
    def waited(self) -> Instant:
        return self.started_at - self.fired_at


class Missed(NamedTuple):
    """A trigger held for a while, and no run began in that time (T23); `why`: what the task did then."""

    task: str
    opened_at: Instant
    closed_at: Instant
    why: str


@dataclass(slots=True)
class PoolFigures:
    """`waited`: of all launches together, `longest_wait` of one; in microseconds."""

    launches: int = 0
    peak_waiting: int = 0
    peak_running: int = 0
    waited: int = 0
    longest_wait: int = 0


@dataclass
class Outcome:
    """`launches` in the order in which they ended; empty where they were not to be kept. `digest` tells two outcomes
    apart that differ in anything about a launch or a missed window."""

    launches: list[Launch] = field(default_factory=list)
    missed: list[Missed] = field(default_factory=list)
    pools: dict[str, PoolFigures] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    #: Tasks that had failed too often, at the end.
    quarantined: tuple[str, ...] = ()
    #: How many moments were worked through.
    steps: int = 0
    keep: bool = True
    _hash: Any = field(default_factory=sha256, repr=False)

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def digest(self) -> str:
        return str(self._hash.hexdigest())

    def launched(self, launch: Launch) -> None:
        self.counts[launch.task] += 1
        self._hash.update(repr(tuple(launch)).encode())
        if self.keep:
            self.launches.append(launch)

    def lapsed(self, missed: Missed) -> None:
        self._hash.update(repr(tuple(missed)).encode())
        self.missed.append(missed)
