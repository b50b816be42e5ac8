"""What two simulations of the same time differ in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from triggers.simulation.outcome import Launch, Outcome


@dataclass(frozen=True)
class Difference:
    """A launch is the same when its trigger fired at the same moment, however long it then waited."""

    added: tuple[Launch, ...]
    gone: tuple[Launch, ...]
    same: int


def compare(before: Outcome, after: Outcome, tasks: Collection[str] | None = None) -> Difference:
    """Of all tasks, or of these; in the order of time."""

    def found(outcome: Outcome) -> dict[tuple[int, str], Launch]:
        return {(each.fired_at, each.task): each for each in outcome.launches if tasks is None or each.task in tasks}

    old, new = found(before), found(after)
    return Difference(
        tuple(new[key] for key in sorted(new.keys() - old.keys())),
        tuple(old[key] for key in sorted(old.keys() - new.keys())),
        len(old.keys() & new.keys()),
    )
