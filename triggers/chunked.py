"""The kinds that count chunks: `ChunkDelta`, `ChunkDelay`, `ChunkRefDelay` (T5, T6, T7)."""

# ruff: noqa: ARG002 - one signature for all kinds
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from app.errors import BadRequest
from triggers.chunks import Scale
from triggers.instants import Instant
from triggers.leaves import CtlTrigger, assign, assign_names
from triggers.verdict import Parameter, dotted

#: Of chunks in a condition: more than there are minutes between the years 2 and 9998.
MOST_CHUNKS = 10**10


def _count(value: int | None, least: int) -> int:
    """Left out: the least there is, which is a later chunk, or the same one."""
    if value is None:
        return least
    if type(value) is not int or not least <= value <= MOST_CHUNKS:
        raise BadRequest(f"delta={value!r} must be a whole number of chunks from {least} on, or left out")
    return value


class _Chunked(CtlTrigger):
    """What the chunk kinds have in common: a scale, and a distance in whole chunks."""

    __slots__ = ()
    least: ClassVar[int] = 0

    scale: str
    delta: int | None
    tz: str
    _chunks: Scale
    _delta: int

    def _measure(self, scale: str, delta: int | None, tz: str) -> None:
        chunks = Scale.parse(scale, tz)
        assign(self, scale=chunks.text, delta=delta, tz=tz, _chunks=chunks, _delta=_count(delta, self.least))

    def settings(self) -> dict[str, Any]:
        return {"scale": self.scale, "delta": self.delta, "tz": self.tz}

    @property
    def _unit(self) -> str:
        """`a day (Europe/Moscow)`, without the article."""
        unit = self.scale if self.scale.isalpha() else f"{self.scale} chunk"
        return f"{unit} ({self.tz})" if self._chunks.by_date and self.tz != "UTC" else unit

    @property
    def _units(self) -> str:
        many = "s" if self._delta > 1 else ""
        if not self._chunks.text.isalpha():
            return f"{self._delta} chunk{many} of {self.scale}"
        unit, bracket, zone = self._unit.partition(" (")
        return f"{self._delta} {unit}{many}{bracket}{zone}"

    def _behind(self, what: str) -> str:
        if self._delta == 0:
            return f"must have reached the {self._unit} of {what}"
        return f"must be at most {self._units} behind {what}"


@dataclass(frozen=True, slots=True, init=False)
class ChunkDelta(_Chunked):
    """Fires when current lies `delta` chunks or more after last seen; left out: in a later chunk (T5, T6)."""

    entity: str
    parameter: str
    scale: str
    delta: int | None
    tz: str
    _chunks: Scale = field(repr=False, compare=False)
    _delta: int = field(repr=False, compare=False)
    kind: ClassVar[str] = "chunk_delta"
    needs_seen: ClassVar[bool] = True
    least: ClassVar[int] = 1

    def __init__(self, entity: str, parameter: str, scale: str, delta: int | None = None, *, tz: str = "UTC") -> None:
        assign_names(self, entity=entity, parameter=parameter)
        self._measure(scale, delta, tz)

    @property
    def rule(self) -> str:
        if self._delta == 1:
            return f"must enter a later {self._unit}"
        return f"must move on by {self._units}"

    def holds(self, now: Instant, current: Instant | None, reference: Instant | None, seen: Instant | None) -> bool:
        if current is None:
            return False
        number = self._chunks.number
        return seen is None or number(current) - number(seen) >= self._delta

    def threshold(self, now: Instant, reference: Instant | None, seen: Instant | None) -> Instant | None:
        return None if seen is None else self._chunks.start(self._chunks.number(seen) + self._delta)


@dataclass(frozen=True, slots=True, init=False)
class ChunkDelay(_Chunked):
    """Fires when current lies at most `delta` chunks before now; left out: in the same chunk or later (T5, T6)."""

    entity: str
    parameter: str
    scale: str
    delta: int | None
    tz: str
    _chunks: Scale = field(repr=False, compare=False)
    _delta: int = field(repr=False, compare=False)
    kind: ClassVar[str] = "chunk_delay"

    def __init__(self, entity: str, parameter: str, scale: str, delta: int | None = None, *, tz: str = "UTC") -> None:
        assign_names(self, entity=entity, parameter=parameter)
        self._measure(scale, delta, tz)

    @property
    def rule(self) -> str:
        return self._behind("now")

    def holds(self, now: Instant, current: Instant | None, reference: Instant | None, seen: Instant | None) -> bool:
        if current is None:
            return False
        number = self._chunks.number
        return number(now) - number(current) <= self._delta

    def threshold(self, now: Instant, reference: Instant | None, seen: Instant | None) -> Instant | None:
        return self._chunks.start(self._chunks.number(now) - self._delta)

    def expires_at(self, now: Instant, current: Instant) -> Instant | None:
        return self._chunks.start(self._chunks.number(current) + self._delta + 1)


@dataclass(frozen=True, slots=True, init=False)
class ChunkRefDelay(_Chunked):
    """Fires when current lies at most `delta` chunks before the reference; left out: in the same or later (T5, T6)."""

    entity: str
    parameter: str
    ref_entity: str
    ref_parameter: str
    scale: str
    delta: int | None
    tz: str
    _chunks: Scale = field(repr=False, compare=False)
    _delta: int = field(repr=False, compare=False)
    kind: ClassVar[str] = "chunk_ref_delay"

    def __init__(
        self,
        entity: str,
        parameter: str,
        ref_entity: str,
        ref_parameter: str,
        scale: str,
        delta: int | None = None,
        *,
        tz: str = "UTC",
    ) -> None:
        assign_names(self, entity=entity, parameter=parameter, ref_entity=ref_entity, ref_parameter=ref_parameter)
        self._measure(scale, delta, tz)

    @property
    def ref(self) -> Parameter:
        return self.ref_entity, self.ref_parameter

    @property
    def rule(self) -> str:
        return self._behind(dotted(self.ref))

    def holds(self, now: Instant, current: Instant | None, reference: Instant | None, seen: Instant | None) -> bool:
        if current is None or reference is None:
            return False
        number = self._chunks.number
        return number(reference) - number(current) <= self._delta

    def threshold(self, now: Instant, reference: Instant | None, seen: Instant | None) -> Instant | None:
        return None if reference is None else self._chunks.start(self._chunks.number(reference) - self._delta)
