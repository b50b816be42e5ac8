"""What became of items, and what is told of an operation to whoever does them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.engine import Row

from app.jobs.endings import storable
from recovery.operations.model import ItemState
from recovery.operations.order import Kind

Item = Row[Any]
SAID = 1000


@dataclass(frozen=True)
class Outcome:
    state: ItemState
    says: str

    @classmethod
    def done(cls, says: str) -> Outcome:
        return cls(ItemState.DONE, says)

    @classmethod
    def skipped(cls, why: object) -> Outcome:
        return cls(ItemState.SKIPPED, text(why))


@dataclass(frozen=True)
class Task:
    """What an operation says of every item of it."""

    operation_id: int
    kind: Kind
    parameters: Mapping[str, Any]
    reason: str | None
    rate: float | None
    #: Seconds for which this batch has been due.
    lag: float


@dataclass
class Acted:
    """By position; an item that is not there was left alone. `actors`: to ring for after the commit."""

    outcomes: dict[int, Outcome] = field(default_factory=dict)
    actors: set[str] = field(default_factory=set)
    #: What is ready now, by process and number: its actor, and when its turn is, on the monotonic clock.
    ready: dict[tuple[int, int], tuple[str, float]] = field(default_factory=dict)


def text(words: object) -> str:
    return str(storable(str(words)))[:SAID]
