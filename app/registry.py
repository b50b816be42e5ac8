"""What the domains have, told by each when it is imported; the roof turns it into Celery tasks and passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from app.claims import Claimable, Lane


@dataclass(frozen=True)
class Pass:
    """A plain function that does one bounded pass, and how often it is worth calling."""

    name: str
    run_once: Callable[..., Any]
    every: timedelta

    def run(self, seconds: float) -> Any:
        """Again at once after a full batch (`more`), for at most so long; the last report."""
        end = time.monotonic() + seconds
        while True:
            report = self.run_once()
            if not getattr(report, "more", False) or time.monotonic() > end:
                return report


@dataclass(frozen=True)
class Waiting:
    """A table whose rows are rung for."""

    model: type[Claimable]
    lanes: tuple[Lane, ...] = (Lane.MAIN,)


@dataclass
class Registry:
    waiting: list[Waiting] = field(default_factory=list)
    passes: dict[str, Pass] = field(default_factory=dict)

    def add_waiting(self, waiting: Waiting) -> None:
        self.waiting.append(waiting)

    def add_pass(self, name: str, run_once: Callable[..., Any], every: timedelta) -> None:
        self.passes[name] = Pass(name, run_once, every)


registry = Registry()
