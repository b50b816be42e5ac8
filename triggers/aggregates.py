"""Triggers that combine CTL triggers (T8).

What they promise:

- They hold CTL triggers only: one aggregate in another is refused by its type, and when it is built.
- Every leaf is read, also where an earlier one has decided, so that all values are recorded (T11).
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from app.errors import BadRequest, NestedTrigger
from triggers.leaves import FORMAT, CtlTrigger
from triggers.verdict import Parameter, Values, Verdict, only


class _Aggregate:
    __slots__ = ()
    kind: ClassVar[str]
    leaves: tuple[CtlTrigger, ...]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All, references included, each once, in order."""
        return tuple(dict.fromkeys(each for leaf in self.leaves for each in leaf.parameters))

    def to_json(self) -> dict[str, typing.Any]:
        return {"format": FORMAT, "kind": self.kind, "leaves": [leaf.form() for leaf in self.leaves]}

    def _check(
        self, decide: Callable[[Iterable[object]], bool], now: datetime, current: Values, seen: Values
    ) -> Verdict:
        readings = tuple(leaf.read(now, current, seen) for leaf in self.leaves)
        kept = self.parameters
        return Verdict(
            decide(reading.fired for reading in readings),
            self.kind,
            now,
            only(kept, current),
            only(kept, seen),
            readings,
        )


@dataclass(frozen=True, slots=True, init=False, repr=False)
class All(_Aggregate):
    """Fires when every one of its triggers does."""

    leaves: tuple[CtlTrigger, ...]
    kind: ClassVar[str] = "all"

    def __init__(self, *leaves: CtlTrigger) -> None:
        object.__setattr__(self, "leaves", _only_leaves("All", leaves))

    @property
    def latched(self) -> bool:
        return any(leaf.latched for leaf in self.leaves)

    def check(self, now: datetime, current: Values, seen: Values) -> Verdict:
        return self._check(all, now, current, seen)

    def __repr__(self) -> str:
        return f"All({', '.join(map(repr, self.leaves))})"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Any(_Aggregate):
    """Fires when at least one of its triggers does."""

    leaves: tuple[CtlTrigger, ...]
    kind: ClassVar[str] = "any"

    def __init__(self, *leaves: CtlTrigger) -> None:
        object.__setattr__(self, "leaves", _only_leaves("Any", leaves))

    @property
    def latched(self) -> bool:
        return all(leaf.latched for leaf in self.leaves)

    def check(self, now: datetime, current: Values, seen: Values) -> Verdict:
        return self._check(any, now, current, seen)

    def __repr__(self) -> str:
        return f"Any({', '.join(map(repr, self.leaves))})"


def _only_leaves(outer: str, leaves: tuple[object, ...]) -> tuple[CtlTrigger, ...]:
    if not leaves:
        raise BadRequest(
            f"{outer}() is empty: give it at least one trigger, such as Delta('dds.orders', 'loaded_to', '2d')"
        )
    found = []
    for leaf in leaves:
        if isinstance(leaf, All | Any):
            raise NestedTrigger(_nested(outer, leaf))
        if not isinstance(leaf, CtlTrigger):
            raise BadRequest(
                f"{outer}(…) was given {leaf!r}, which is no trigger: give it triggers such as Delta or ChunkDelta, "
                f"one by one, not as a list"
            )
        found.append(leaf)
    return tuple(found)


def _nested(outer: str, inner: All | Any) -> str:
    kind = type(inner).__name__
    if kind == outer:
        flat = ", ".join(map(repr, inner.leaves))
        return f"{outer}(…) cannot hold {inner!r}: write its triggers directly, as {outer}({flat}, …)"
    return (
        f"{outer}(…) cannot hold {inner!r}: All and Any do not nest. Find one simpler trigger, or split the work in "
        f"two tasks: one that waits for the {kind} and advances a CTL parameter of its own, one that waits for that"
    )
