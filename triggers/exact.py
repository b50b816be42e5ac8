"""The kinds that measure exactly: `Delta`, `Delay`, `RefDelay` (T2, T3, T4)."""

# ruff: noqa: ARG002 - one signature for all kinds
from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

from app.clock import duration
from app.errors import BadRequest
from triggers.instants import Instant, length, span
from triggers.leaves import CtlTrigger, assign, assign_names
from triggers.verdict import Parameter, dotted


def distance(what: str, value: timedelta | str, least: int) -> timedelta:
    """`what` is the word that the author of the task has written."""
    if not isinstance(value, timedelta | str):
        raise BadRequest(
            f"{what}={value!r} is not a duration: write a timedelta or text such as '90s', '30min' or '2d'"
        )
    try:
        found = duration(value)
    except ValueError as error:
        raise BadRequest(f"{what}={error}") from None
    if span(found) < least:
        wanted = "longer than 0s" if least else "0s or longer"
        raise BadRequest(f"{what}={value!r} must be {wanted}: write such as '90s', '30min' or '2d'")
    return found


@dataclass(frozen=True, slots=True, init=False)
class Delta(CtlTrigger):
    """Fires when `current - last_seen >= min_delta` (T2)."""

    entity: str
    parameter: str
    min_delta: timedelta
    _span: int = field(repr=False, compare=False)
    kind: ClassVar[str] = "delta"
    needs_seen: ClassVar[bool] = True

    def __init__(self, entity: str, parameter: str, min_delta: timedelta | str) -> None:
        assign_names(self, entity=entity, parameter=parameter)
        found = distance("min_delta", min_delta, 1)
        assign(self, min_delta=found, _span=span(found))

    @property
    def rule(self) -> str:
        return f"must grow by {length(self._span)}"

    def settings(self) -> dict[str, Any]:
        return {"min_delta_us": self._span}

    def holds(self, now: Instant, current: Instant | None, reference: Instant | None, seen: Instant | None) -> bool:
        return current is not None and (seen is None or current - seen >= self._span)

    def threshold(self, now: Instant, reference: Instant | None, seen: Instant | None) -> Instant | None:
        return None if seen is None else seen + self._span


@dataclass(frozen=True, slots=True, init=False)
class Delay(CtlTrigger):
    """Fires when `now - current <= max_delay` (T3)."""

    entity: str
    parameter: str
    max_delay: timedelta
    _span: int = field(repr=False, compare=False)
    kind: ClassVar[str] = "delay"

    def __init__(self, entity: str, parameter: str, max_delay: timedelta | str) -> None:
        assign_names(self, entity=entity, parameter=parameter)
        found = distance("max_delay", max_delay, 0)
        assign(self, max_delay=found, _span=span(found))

    @property
    def rule(self) -> str:
        return f"must be at most {length(self._span)} behind now"

    def settings(self) -> dict[str, Any]:
        return {"max_delay_us": self._span}

    def holds(self, now: Instant, current: Instant | None, reference: Instant | None, seen: Instant | None) -> bool:
        return current is not None and now - current <= self._span

    def threshold(self, now: Instant, reference: Instant | None, seen: Instant | None) -> Instant | None:
        return now - self._span

    def expires_at(self, now: Instant, current: Instant) -> Instant | None:
        return current + self._span + 1


@dataclass(frozen=True, slots=True, init=False)
class RefDelay(CtlTrigger):
    """Fires when `current_reference - current <= max_delay` (T4)."""

    entity: str
    parameter: str
    ref_entity: str
    ref_parameter: str
    max_delay: timedelta
    _span: int = field(repr=False, compare=False)
    kind: ClassVar[str] = "ref_delay"

    def __init__(
        self, entity: str, parameter: str, ref_entity: str, ref_parameter: str, max_delay: timedelta | str
    ) -> None:
        assign_names(self, entity=entity, parameter=parameter, ref_entity=ref_entity, ref_parameter=ref_parameter)
        found = distance("max_delay", max_delay, 0)
        assign(self, max_delay=found, _span=span(found))

    @property
    def ref(self) -> Parameter:
        return self.ref_entity, self.ref_parameter

    @property
    def rule(self) -> str:
        return f"must be at most {length(self._span)} behind {dotted(self.ref)}"

    def settings(self) -> dict[str, Any]:
        return {"max_delay_us": self._span}

    def holds(self, now: Instant, current: Instant | None, reference: Instant | None, seen: Instant | None) -> bool:
        return current is not None and reference is not None and reference - current <= self._span

    def threshold(self, now: Instant, reference: Instant | None, seen: Instant | None) -> Instant | None:
        return None if reference is None else reference - self._span
