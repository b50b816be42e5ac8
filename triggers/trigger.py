"""A trigger: a CTL trigger, or `All` or `Any` of some; and how it is read back from JSON.

What it promises:

- `from_json(trigger.to_json()) == trigger`, also for what an earlier release wrote: `format` says which form it has.
- What a reader does not know, it refuses: a trigger understood in part would fire at the wrong time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any as Anything
from typing import TypeAlias

from app.errors import BadRequest
from triggers.aggregates import All, Any
from triggers.chunked import ChunkDelay, ChunkDelta, ChunkRefDelay
from triggers.exact import Delay, Delta, RefDelay
from triggers.leaves import FORMAT, CtlTrigger

__all__ = [
    "All",
    "Any",
    "ChunkDelay",
    "ChunkDelta",
    "ChunkRefDelay",
    "CtlTrigger",
    "Delay",
    "Delta",
    "RefDelay",
    "Trigger",
    "from_json",
]

Trigger: TypeAlias = CtlTrigger | All | Any

_KINDS = [each.kind for each in (Delta, Delay, RefDelay, ChunkDelta, ChunkDelay, ChunkRefDelay)]
_AGGREGATES: dict[str, Callable[..., All | Any]] = {each.kind: each for each in (All, Any)}


def from_json(data: Mapping[str, Anything]) -> Trigger:
    fields = _Fields(data)
    form = fields.take("format")
    if form != FORMAT:
        raise BadRequest(
            f"the trigger is of format {form!r}, this release reads {FORMAT}: use the release that wrote it"
        )
    kind = fields.kind()
    if aggregate := _AGGREGATES.get(kind):
        leaves = fields.take("leaves")
        fields.done()
        if not isinstance(leaves, list):
            raise BadRequest(f"the leaves of a trigger of kind {kind!r} are {leaves!r}: write a list of triggers")
        return aggregate(*(_leaf(_Fields(leaf)) for leaf in leaves))
    return _leaf(fields)


class _Fields:
    """A JSON object from which each field is taken once, and nothing may be left."""

    def __init__(self, data: object) -> None:
        if not isinstance(data, Mapping):
            raise BadRequest(f"a trigger is written as a JSON object, not as {data!r}")
        self._all = data
        self._left = dict(data)

    def take(self, field: str) -> Anything:
        if field not in self._all:
            raise BadRequest(f"the trigger {dict(self._all)!r} has no {field!r}: write all fields, as to_json() does")
        self._left.pop(field, None)
        return self._all[field]

    def kind(self) -> str:
        kind = self.take("kind")
        if not isinstance(kind, str):
            raise BadRequest(f"{kind!r} is no kind of trigger: write one of {', '.join(map(repr, _KINDS))}")
        return kind

    def done(self) -> None:
        if self._left:
            raise BadRequest(
                f"the trigger {dict(self._all)!r} has fields that this release does not know: "
                f"{', '.join(map(repr, self._left))}; use the release that wrote it"
            )


def _leaf(fields: _Fields) -> CtlTrigger:
    kind = fields.kind()
    made = _exact(kind, fields) or _chunked(kind, fields)
    if made is None:
        known = ", ".join(map(repr, _KINDS))
        nested = "; all and any do not nest" if kind in _AGGREGATES else ""
        raise BadRequest(f"{kind!r} is no kind of CTL trigger{nested}: write one of {known}")
    fields.done()
    return made


def _exact(kind: str, fields: _Fields) -> CtlTrigger | None:
    match kind:
        case "delta":
            return Delta(*_names(fields), _duration(fields, "min_delta_us"))
        case "delay":
            return Delay(*_names(fields), _duration(fields, "max_delay_us"))
        case "ref_delay":
            return RefDelay(*_names(fields), *_ref(fields), _duration(fields, "max_delay_us"))
        case _:
            return None


def _chunked(kind: str, fields: _Fields) -> CtlTrigger | None:
    match kind:
        case "chunk_delta":
            return ChunkDelta(*_names(fields), *_scale(fields), tz=fields.take("tz"))
        case "chunk_delay":
            return ChunkDelay(*_names(fields), *_scale(fields), tz=fields.take("tz"))
        case "chunk_ref_delay":
            return ChunkRefDelay(*_names(fields), *_ref(fields), *_scale(fields), tz=fields.take("tz"))
        case _:
            return None


def _names(fields: _Fields) -> tuple[str, str]:
    return fields.take("entity"), fields.take("parameter")


def _ref(fields: _Fields) -> tuple[str, str]:
    return fields.take("ref_entity"), fields.take("ref_parameter")


def _scale(fields: _Fields) -> tuple[str, int | None]:
    return fields.take("scale"), fields.take("delta")


def _duration(fields: _Fields, field: str) -> timedelta:
    value = fields.take(field)
    if type(value) is not int:
        raise BadRequest(f"{field}={value!r} of a trigger must be a whole number of microseconds")
    try:
        return timedelta(microseconds=value)
    except OverflowError:
        raise BadRequest(f"{field}={value!r} of a trigger is longer than a duration can be") from None
