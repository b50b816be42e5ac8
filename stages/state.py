"""The state that a stage keeps beside an entity, as the parts of a protobuf `Any` (S6). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.errors import BadOutcome
from stages.definition import Definition
from stages.forms import State

#: In bytes. Larger things belong into a table or a store of their own, named by the state.
STATE_LIMIT = 1024 * 1024


@dataclass(slots=True)
class Stored:
    type_url: str
    value: bytes
    #: 0: there is none.
    version: int


def unpack(definition: Definition, stored: Stored | None) -> State | None:
    """One of its own for each call. A stage that declares no state is given none, whatever an earlier release of it has
    left."""
    if stored is None or stored.version == 0 or definition.form is None:
        return None
    try:
        return definition.form.read(stored.type_url, stored.value)
    except BadOutcome as error:
        raise BadOutcome(f"stage {definition.task}: {error}") from None


def pack(definition: Definition, entity_id: str, state: Any) -> tuple[str, bytes]:
    """The URL of its type and its bytes."""
    form = definition.form
    if form is None:
        raise _refusal(definition, entity_id, "it returned a state but declares none: add state=… to its @stage")
    if not form.fits(state):
        # Messages show themselves in several lines.
        shown = " ".join(repr(state).split())
        raise _refusal(
            definition,
            entity_id,
            f"state={shown:.100} ({type(state).__name__}) must be a {form.name}, None to remove it, or left out to "
            "keep it",
        )
    try:
        type_url, value = form.write(state)
    except BadOutcome as error:
        raise _refusal(definition, entity_id, str(error)) from None
    if len(value) > STATE_LIMIT:
        raise _refusal(
            definition,
            entity_id,
            f"its state takes {len(value)} bytes, more than {STATE_LIMIT}: store the large part elsewhere and keep its "
            "id",
        )
    return type_url, value


def _refusal(definition: Definition, entity_id: str, reason: str) -> BadOutcome:
    return BadOutcome(f"{definition.whose(entity_id)}: {reason}")
