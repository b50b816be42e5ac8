"""Where a leaf stands among those that are measured alike.

Every leaf asks the same: has its *measure* reached its *key*? Both are whole numbers.

| kind | measure | key |
|---|---|---|
| Delta, ChunkDelta | current | the leaf's threshold; below everything if nothing was seen |
| Delay, RefDelay | current - base | -max_delay |
| ChunkDelay, ChunkRefDelay | number(current) - number(base) | -delta |

The base is the time now or the reference. What rests on last seen has one measure for all kinds, scales and zones.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from app.errors import BadRequest
from triggers.chunks import Scale
from triggers.instants import Instant, span
from triggers.trigger import ChunkDelay, ChunkDelta, ChunkRefDelay, CtlTrigger, Delay, Delta, RefDelay
from triggers.verdict import Parameter

#: The time, as what leaves are measured from. No entity's name is empty.
NOW: Parameter = ("", "now")

#: Keys lie between ±FAR, measures closer to 0, so every measure has reached -FAR; NOTHING has reached no key.
FAR = 2**62
NOTHING = -(2**63)

#: What a leaf is measured from, and in chunks of which scale. None: from nothing, exactly.
Rest: TypeAlias = tuple[Parameter | None, Scale | None]
Latched: TypeAlias = Delta | ChunkDelta

_LATCHED: Rest = (None, None)
_EXACT: Rest = (NOW, None)


def rest_of(leaf: CtlTrigger) -> Rest:
    match leaf:
        case Delta() | ChunkDelta():
            return _LATCHED
        case Delay():
            return _EXACT
        case RefDelay():
            return leaf.ref, None
        case ChunkDelay():
            return NOW, Scale.parse(leaf.scale, leaf.tz)
        case ChunkRefDelay():
            return leaf.ref, Scale.parse(leaf.scale, leaf.tz)
        case _:
            raise _unknown(leaf)


def fixed_key(leaf: CtlTrigger) -> int:
    """Of a leaf that does not rest on last seen."""
    match leaf:
        case Delay() | RefDelay():
            return max(-span(leaf.max_delay), -FAR)
        case ChunkDelay() | ChunkRefDelay():
            return -(leaf.delta or 0)
        case _:
            raise _unknown(leaf)


def seen_key(rule: Latched, seen: Instant | None) -> int:
    threshold = rule.threshold(0, None, seen)
    return -FAR if threshold is None else min(threshold, FAR)


def rule_of(leaf: CtlTrigger) -> Latched | None:
    """What gives its key, if that rests on last seen; without names, so that very many tasks share a few."""
    match leaf:
        case Delta():
            return _delta(leaf.min_delta)
        case ChunkDelta():
            return _chunk_delta(leaf.scale, leaf.delta, leaf.tz)
        case _:
            return None


_delta = lru_cache(maxsize=4096)(lambda min_delta: Delta("-", "-", min_delta))
_chunk_delta = lru_cache(maxsize=4096)(lambda scale, delta, tz: ChunkDelta("-", "-", scale, delta, tz=tz))


def _unknown(leaf: CtlTrigger) -> BadRequest:
    return BadRequest(
        f"the index knows no kind {leaf.kind!r}: say in triggers/index/keys.py what {leaf!r} is measured by"
    )
