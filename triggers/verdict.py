"""What a check of a trigger found: whether it fires, and why, as data and as text (T24).

What it promises:

- A `Verdict` holds the time and the values that decided, of every parameter of the trigger (T11), so it can be stored.
- `tree` is plain data that JSON can hold. `explain` of a stored tree gives the same text as the verdict did.
- A leaf fires exactly when its current value has reached its `threshold`; without one, see its sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from triggers.instants import END, FIRST, Instant, iso, length, shown

Parameter: TypeAlias = tuple[str, str]
Values: TypeAlias = Mapping[Parameter, datetime]


def dotted(parameter: Parameter) -> str:
    return ".".join(parameter)


def only(parameters: Iterable[Parameter], values: Values) -> Values:
    """What there is of these."""
    return {each: value for each in parameters if (value := values.get(each)) is not None}


@dataclass(frozen=True, slots=True)
class Reading:
    """One leaf, read at one moment. `rule` goes on after the parameter's name: `must grow by 2d`."""

    kind: str
    rule: str
    fired: bool
    parameter: Parameter
    ref: Parameter | None
    needs_seen: bool
    now: Instant
    current: Instant | None
    reference: Instant | None
    seen: Instant | None
    threshold: Instant | None
    expires_at: Instant | None

    @property
    def missing(self) -> list[str]:
        absent = []
        if self.current is None:
            absent.append("current")
        if self.ref is not None and self.reference is None:
            absent.append("reference")
        if self.needs_seen and self.seen is None:
            absent.append("last_seen")
        return absent

    @property
    def distance(self) -> int | None:
        """How far current is from firing; None where that cannot be said."""
        if self.fired:
            return 0
        if self.current is None or self.threshold is None or not FIRST <= self.threshold < END:
            return None
        return self.threshold - self.current

    def tree(self) -> dict[str, Any]:
        distance = self.distance
        return {
            "kind": self.kind,
            "fired": self.fired,
            "sentence": self.sentence(),
            "entity": self.parameter[0],
            "parameter": self.parameter[1],
            "ref_entity": self.ref[0] if self.ref else None,
            "ref_parameter": self.ref[1] if self.ref else None,
            "now": iso(self.now),
            "last_seen": iso(self.seen),
            "current": iso(self.current),
            "reference": iso(self.reference),
            "threshold": iso(self.threshold),
            "expires_at": iso(self.expires_at),
            "distance_seconds": None if distance is None else distance / 1_000_000,
            "distance": None if distance is None else length(distance, 2),
            "missing": self.missing,
        }

    def sentence(self) -> str:
        return f"{dotted(self.parameter)} {self.rule}: {self._facts()}"

    def _facts(self) -> str:
        if self.current is None:
            return "it has no value yet"
        if self.ref is not None and self.reference is None:
            return f"now {shown(self.current)}, but {dotted(self.ref)} has no value yet"
        if self.needs_seen and self.seen is None:
            return f"never seen before, so any value fires, now {shown(self.current)}"
        return f"{self._values(self.current)}; {self._outcome()}"

    def _values(self, current: Instant) -> str:
        if self.needs_seen and self.seen is not None:
            return f"last seen {shown(self.seen)}, now {shown(current)}"
        if self.ref is not None and self.reference is not None:
            return f"it is at {shown(current)}, {dotted(self.ref)} at {shown(self.reference)}"
        return f"it is at {shown(current)}, the time is {shown(self.now)}"

    def _outcome(self) -> str:
        distance = self.distance
        if distance is None or self.threshold is None:
            return "no date is late enough"
        if not self.fired:
            verb = "is" if length(distance, 2).count(" ") == 0 else "are"
            return f"{length(distance, 2)} {verb} missing (at {shown(self.threshold)})"
        if self.expires_at is not None:
            return f"lapses at {shown(self.expires_at)}"
        return f"reached {shown(self.threshold)}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`kind` is that of the leaf, or `all` or `any`."""

    fired: bool
    kind: str
    now: datetime
    current: Values
    seen: Values
    readings: tuple[Reading, ...]

    @property
    def tree(self) -> dict[str, Any]:
        children = [reading.tree() for reading in self.readings]
        if self.kind not in ("all", "any"):
            return children[0]
        holding = sum(reading.fired for reading in self.readings)
        wanted = "all" if self.kind == "all" else "at least one"
        return {
            "kind": self.kind,
            "fired": self.fired,
            "sentence": f"{wanted} of {len(children)} must hold: {holding or 'none'} {'does' if holding < 2 else 'do'}",
            "children": children,
        }

    def explain(self) -> str:
        return explain(self.tree)


def explain(tree: Mapping[str, Any]) -> str:
    """The tree as text, one line for each condition."""
    lines = [_line(tree), *("  " + _line(child) for child in tree.get("children", ()))]
    return "\n".join(lines)


def _line(node: Mapping[str, Any]) -> str:
    return f"{'✓' if node['fired'] else '✗'} {node['sentence']}"
