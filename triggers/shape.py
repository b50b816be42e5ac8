"""What a trigger decides, without the names of what it watches: for passes over very many tasks.

What it promises:

- Tasks whose triggers differ in names only have the same shape, so a hundred thousand tasks share a few.
- `from_shape(shape(trigger)).holds(...)` decides as `trigger.check` does, from the same `holds` of the leaves.
- `holds` makes no objects, and reads integers only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from triggers.instants import Instant
from triggers.leaves import CtlTrigger
from triggers.trigger import All, Any, Trigger, from_json

#: Of one leaf: current, reference, last seen.
LeafValues: TypeAlias = tuple[Instant | None, Instant | None, Instant | None]
Holds: TypeAlias = Callable[[Instant, Sequence[LeafValues]], bool]

#: In place of every name, so that the text is a trigger that can be read.
_BLANK = "-"
_NAMES = ("entity", "parameter", "ref_entity", "ref_parameter")


@dataclass(frozen=True, slots=True)
class Shape:
    """`holds(now, values)` takes one triple for each leaf, in the order of the trigger's `leaves`."""

    trigger: Trigger
    holds: Holds


def shape(trigger: Trigger) -> str:
    form = trigger.to_json()
    for leaf in form.get("leaves", [form]):
        leaf.update({name: _BLANK for name in _NAMES if name in leaf})
    return json.dumps(form, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=4096)
def from_shape(text: str) -> Shape:
    trigger = from_json(json.loads(text))
    return Shape(trigger, _holds(trigger))


def _holds(trigger: Trigger) -> Holds:
    # Bound methods: the attribute is looked up once for a shape, not once for a task.
    decide = [leaf.holds for leaf in trigger.leaves]
    match trigger:
        case CtlTrigger():
            return _single(trigger)
        case All():

            def every(now: Instant, values: Sequence[LeafValues]) -> bool:
                for holds, (current, reference, seen) in zip(decide, values, strict=True):
                    if not holds(now, current, reference, seen):
                        return False
                return True

            return every
        case Any():

            def one(now: Instant, values: Sequence[LeafValues]) -> bool:
                for holds, (current, reference, seen) in zip(decide, values, strict=True):
                    if holds(now, current, reference, seen):
                        return True
                return False

            return one


def _single(leaf: CtlTrigger) -> Holds:
    holds = leaf.holds

    def single(now: Instant, values: Sequence[LeafValues]) -> bool:
        current, reference, seen = values[0]
        return holds(now, current, reference, seen)

    return single
