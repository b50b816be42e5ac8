"""What `@stage` says of a stage. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from stages.forms import Form, State, form_of
from stages.kind import Kind

if TYPE_CHECKING:
    from stages.remote.service import Remote

#: The stage of every kind that asks the others.
SYSTEM = "system"
#: The walk over all entities of a kind.
RESWEEP = "resweep"
RESERVED = {SYSTEM: "it is the stage that asks all others", RESWEEP: "it is the walk over all entities"}
PREFIX = "stage"
#: The end of the name of an entry that asks a remote stage; no other name has a dot.
ASK = ".ask"


def queue_of(kind: str, stage: str) -> str:
    return f"{PREFIX}.{kind}.{stage}"


@dataclass(frozen=True, eq=False)
class Definition:
    kind: Kind
    name: str
    #: The name of its Celery task.
    task: str
    #: The instance of the user's class.
    stage: Any
    #: Fields; None: asked after any change.
    watches: frozenset[str] | None
    rate_limit: str | None
    max_parallel: int | None
    batch: int
    time_limit: timedelta
    max_attempts: int
    #: The class of its state.
    state: type[State] | None
    #: False: no change asks it; another entry does (`asker`), in a queue of its own.
    asked: bool = True
    #: The service in which it lives.
    remote: Remote | None = None
    #: Called after each save, once or more (S14).
    saved: Callable[[Any, State | None], Any] | None = None

    # What every visit needs is looked up once.

    @cached_property
    def queue(self) -> str:
        return queue_of(self.kind.name, self.name)

    @cached_property
    def should_process(self) -> Callable[[Any, State | None], Any]:
        found: Callable[[Any, State | None], Any] = self.stage.should_process
        return found

    @cached_property
    def process(self) -> Callable[[Any, State | None], Any]:
        found: Callable[[Any, State | None], Any] = self.stage.process
        return found

    @cached_property
    def form(self) -> Form | None:
        """Of its state."""
        return form_of(self.state)

    @cached_property
    def asks_for(self) -> str | None:
        """Of an entry that asks a remote stage: the name of that stage."""
        return self.name.removesuffix(ASK) if self.name.endswith(ASK) else None

    @cached_property
    def asker(self) -> str:
        """The name under which changes ask for it."""
        return self.name if self.asked else f"{self.name}{ASK}"

    @cached_property
    def guarded(self) -> bool:
        """S12: whoever only asks works on no entity."""
        return self.kind.mode == "exclusive" and self.asks_for is None

    @cached_property
    def module(self) -> str:
        """Whose registration tells that it is gone."""
        return type(self.stage).__module__ if self.remote is None else self.remote.source

    def whose(self, entity_id: str) -> str:
        """Begins a sentence about a visit."""
        return f"stage {self.task} of {self.kind.name} {entity_id!r}"
