"""How long simulated runs take, and which of them fail.

What it promises: the same seed gives the same answer for the same run of a task, in whatever order runs are asked for.
So two simulations that differ in one trigger differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from math import exp, log
from typing import Protocol

from app.errors import BadRequest
from triggers.instants import Instant

#: Nothing takes no time; what would would never let the clock go on.
LEAST = 1000


class Lengths(Protocol):
    def attempt(self, task: str, run: int, attempt: int) -> tuple[Instant, bool]:
        """Of the n-th attempt of the task's n-th run: its length, and whether it fails."""
        ...


@dataclass(frozen=True)
class Constant:
    """The same for all runs of a task."""

    length: Instant
    by_task: Mapping[str, Instant] = field(default_factory=dict)

    def attempt(self, task: str, run: int, attempt: int) -> tuple[Instant, bool]:  # noqa: ARG002
        return max(LEAST, self.by_task.get(task, self.length)), False


@dataclass(frozen=True)
class Spread:
    """Drawn between `shortest` and `longest`, on a logarithmic scale: most runs are short, a few are long. `failing`:
    the share of attempts that fail."""

    shortest: Instant
    longest: Instant
    seed: int = 0
    failing: float = 0.0

    def __post_init__(self) -> None:
        if not LEAST <= self.shortest <= self.longest:
            raise BadRequest(
                f"runs between {self.shortest} and {self.longest} microseconds: write {LEAST} or more, and the shorter "
                "length first"
            )
        if not 0 <= self.failing <= 1:
            raise BadRequest(f"failing={self.failing} must be a share, from 0 to 1")

    def attempt(self, task: str, run: int, attempt: int) -> tuple[Instant, bool]:
        drawn = blake2b(f"{self.seed}:{task}:{run}:{attempt}".encode(), digest_size=8).digest()
        low, high = log(self.shortest), log(self.longest)
        place = int.from_bytes(drawn[:4]) / 2**32
        return round(exp(low + (high - low) * place)), int.from_bytes(drawn[4:]) / 2**32 < self.failing
