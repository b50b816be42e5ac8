"""What a simulation is given: tasks, pools, how far the data sets have got, and how they move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from triggers.instants import MINUTE, Instant, span
from triggers.trigger import Trigger
from triggers.verdict import Parameter


class Change(NamedTuple):
    at: Instant
    parameter: Parameter
    value: Instant


@dataclass(frozen=True, slots=True)
class Task:
    """As it is declared; spans in microseconds."""

    name: str
    trigger: Trigger
    pool: str = "default"
    priority: int = 0
    produces: tuple[Parameter, ...] = ()
    min_interval: int | None = None
    first_run: str = "fire"
    on_lapse: str = "drop"
    max_failures: int = 5
    backoff: int = 5_000_000

    @classmethod
    def of(cls, declared: Any) -> Task:
        """A `Definition`, or a row of `reactive_task` with its trigger read."""
        return cls(
            declared.name,
            declared.trigger,
            declared.pool,
            declared.priority,
            tuple((entity, parameter) for entity, parameter in declared.produces or ()),
            None if declared.min_interval is None else span(declared.min_interval),
            declared.first_run,
            declared.on_lapse,
            declared.max_failures,
            span(declared.backoff),
        )


@dataclass(frozen=True, slots=True)
class Pool:
    """`rate`: starts per second. Spans in microseconds."""

    name: str
    max_parallel: int | None = None
    rate: float | None = None
    burst: float = 1.0
    ageing: int = MINUTE
    max_hold: int = 30 * MINUTE


@dataclass(frozen=True)
class Warehouse:
    """How things stand at the beginning. A pool that is not listed has no limits; `slots`: those of all workers."""

    tasks: tuple[Task, ...]
    pools: tuple[Pool, ...] = ()
    slots: int | None = None
    current: Mapping[Parameter, Instant] = field(default_factory=dict)
    #: By task.
    seen: Mapping[str, Mapping[Parameter, Instant]] = field(default_factory=dict)
