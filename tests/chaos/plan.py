"""What is broken when: a function of a seed, and of nothing else.

All ways in turn, shuffled anew in each round; the first round is not cut short. So the plan of a longer run begins with
that of a shorter one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeVar

LEASE_SECONDS = 2
#: Of a client of the broker, after which it takes a silent one for lost (`app.doorbell`).
DEAF_SECONDS = 5
AT_ONCE = (0.0, 0.0)
#: How long each lasts, at least and at most. Several that last overlap each other, and those that happen at once.
WAYS: dict[str, tuple[float, float]] = {
    "kill_a_worker": AT_ONCE,
    "kill_a_child": AT_ONCE,
    "freeze_a_worker": (LEASE_SECONDS * 1.2, LEASE_SECONDS * 2),
    "kill_the_scheduler": AT_ONCE,
    "freeze_the_scheduler": (LEASE_SECONDS * 1.2, LEASE_SECONDS * 2),
    "set_a_clock": AT_ONCE,
    "kill_the_broker": AT_ONCE,
    "flush_the_broker": AT_ONCE,
    "wipe_the_broker": (0.0, 3.0),
    "cut_the_broker": AT_ONCE,
    "silence_the_broker": (DEAF_SECONDS * 0.5, DEAF_SECONDS * 1.5),
    "lose_the_broker": AT_ONCE,
    "crash_postgres": AT_ONCE,
    "cut_the_database": AT_ONCE,
    "silence_the_database": (LEASE_SECONDS * 0.5, LEASE_SECONDS * 1.5),
    "lose_the_database": (LEASE_SECONDS, LEASE_SECONDS * 3),
    "slow_network": (2.0, 5.0),
    "lossy_network": (2.0, 5.0),
    "long_transaction": (LEASE_SECONDS * 1.5, LEASE_SECONDS * 3),
    "cancel_a_run": AT_ONCE,
}
REST_SECONDS = (0.2, 1.4)

T = TypeVar("T")


@dataclass(frozen=True)
class Blow:
    """One thing that is broken: in its turn, not before its time, for at least so long."""

    at: float
    way: str
    seconds: float
    #: From 0 to 1: which one, or how much.
    dice: float

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.at:6.1f} s  {self.way} ({self.dice:.3f}){lasting}"

    def among(self, found: Sequence[T]) -> T:
        return found[int(self.dice * len(found))]

    def between(self, least: float, most: float) -> float:
        return least + self.dice * (most - least)


def planned(seed: int, seconds: float) -> tuple[Blow, ...]:
    """For about so long, where everything is quick; one round at least."""
    numbered = enumerate(_endless(random.Random(f"{seed}/plan")))
    return tuple(blow for _, blow in takewhile(lambda each: each[0] < len(WAYS) or each[1].at < seconds, numbered))


def _endless(dice: random.Random) -> Iterator[Blow]:
    at = 0.0
    while True:
        for way in dice.sample(list(WAYS), len(WAYS)):
            at += dice.uniform(*REST_SECONDS)
            yield Blow(at, way, dice.uniform(*WAYS[way]), dice.random())
