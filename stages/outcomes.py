"""What a visit comes to (S5). Pure.

`timer` is when the stage wants the entity again, a time with a time zone or a span from now; left out, no timer stays
armed. `state`: left out, it stays; `None` removes it; a message or a model is the new one.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from stages.forms import State


class Keep(enum.Enum):
    KEEP = "keep"

    def __repr__(self) -> str:
        return "KEEP"


KEEP: Literal[Keep.KEEP] = Keep.KEEP


@dataclass(frozen=True, slots=True)
class Untouched:
    """Nothing of the entity is changed."""

    timer: datetime | timedelta | None = None
    state: State | Keep | None = KEEP


@dataclass(frozen=True, slots=True)
class Updated:
    """The entity that `process` was given, changed. Saved if nobody else has changed it meanwhile; otherwise
    `process` is called again, with the entity as it is then."""

    entity: Any
    timer: datetime | timedelta | None = None
    state: State | Keep | None = KEEP


@dataclass(frozen=True, slots=True)
class Patch:
    """New values by attribute. If somebody else has changed the entity meanwhile they are set all the same, unless
    one of the attributes in `reads` is among what changed."""

    set: Mapping[str, Any]
    reads: Collection[str] = ()
    timer: datetime | timedelta | None = None
    state: State | Keep | None = KEEP


Outcome = Untouched | Updated | Patch
