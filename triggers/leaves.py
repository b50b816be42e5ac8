"""What every CTL trigger is: one condition on one parameter, in two of the kinds compared with another one (T1).

What they promise:

- Pure and small: a few integer operations, no clock, no I/O (T1).
- A missing current value or reference never fires and never raises (T14).
- Where a kind rests on what was last seen and nothing was, it fires with any value (T12).
- Time alone never makes one true: for a given time, current only has to be late enough.
- Equal ones compare equal, and none can be changed.
"""

# ruff: noqa: ARG002 - one signature for all kinds
from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any, ClassVar

from triggers.instants import Instant, to_instant
from triggers.names import name
from triggers.verdict import Parameter, Reading, Values, Verdict, dotted, only

#: Rises when the meaning of a stored trigger changes; not when a kind is added.
FORMAT = 1


class CtlTrigger(ABC):
    """One condition on one parameter; what `All` and `Any` combine."""

    __slots__ = ()
    kind: ClassVar[str]
    #: Rests on what the task saw at its last regular run.
    needs_seen: ClassVar[bool] = False

    entity: str
    parameter: str

    @property
    @abstractmethod
    def rule(self) -> str:
        """Goes on after the parameter's name."""

    @abstractmethod
    def holds(self, now: Instant, current: Instant | None, reference: Instant | None, seen: Instant | None) -> bool:
        """The one decision. Everything else only tells about it."""

    @abstractmethod
    def threshold(self, now: Instant, reference: Instant | None, seen: Instant | None) -> Instant | None:
        """What current must reach; None where what it is measured from is missing."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What the kind is set to, names of parameters left out; for JSON."""

    def expires_at(self, now: Instant, current: Instant) -> Instant | None:
        """The first moment from `now` on at which it fires no more, if nothing but time moves."""
        return None

    @property
    def ref(self) -> Parameter | None:
        return None

    def form(self) -> dict[str, Any]:
        """For JSON: what it is, without the format, which is said once for a trigger."""
        names = {"entity": self.entity, "parameter": self.parameter}
        if self.ref is not None:
            names |= {"ref_entity": self.ref[0], "ref_parameter": self.ref[1]}
        return {"kind": self.kind, **names, **self.settings()}

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **self.form()}

    @property
    def leaves(self) -> tuple[CtlTrigger, ...]:
        return (self,)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        own = (self.entity, self.parameter)
        return (own,) if self.ref is None or self.ref == own else (own, self.ref)

    @property
    def latched(self) -> bool:
        return self.needs_seen

    def check(self, now: datetime, current: Values, seen: Values) -> Verdict:
        reading = self.read(now, current, seen)
        kept = self.parameters
        return Verdict(
            reading.fired,
            self.kind,
            now,
            only(kept, current),
            only(kept, seen),
            (reading,),
        )

    def read(self, now: datetime, current: Values, seen: Values) -> Reading:
        own, ref = (self.entity, self.parameter), self.ref
        moment = to_instant(now, "now")
        value, last = _value(current, own, "current"), _value(seen, own, "last seen")
        reference = _value(current, ref, "current") if ref else None
        fired = self.holds(moment, value, reference, last)
        return Reading(
            self.kind,
            self.rule,
            fired,
            own,
            ref,
            self.needs_seen,
            moment,
            value,
            reference,
            last,
            self.threshold(moment, reference, last),
            self.expires_at(moment, value) if fired and value is not None else None,
        )


def _value(values: Values, parameter: Parameter, what: str) -> Instant | None:
    moment = values.get(parameter)
    return None if moment is None else to_instant(moment, f"{what} {dotted(parameter)}")


def assign(trigger: CtlTrigger, **values: object) -> None:
    """While it is built; afterwards it is frozen."""
    for attribute, value in values.items():
        object.__setattr__(trigger, attribute, value)


def assign_names(trigger: CtlTrigger, **names: str) -> None:
    assign(trigger, **{what: name(what, value) for what, value in names.items()})
