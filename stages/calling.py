"""One visit: calls `process`, and checks all that it returned before anything is saved (S5). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from app.errors import BadOutcome, BadRequest
from stages.asking import Call, direct
from stages.definition import Definition
from stages.kind import checked_names
from stages.moments import moment
from stages.outcomes import KEEP, Keep, Outcome, Patch, Untouched, Updated
from stages.present import called_at
from stages.state import Stored, pack, unpack
from stages.store import Loaded

#: A timer may have come while `process` was at work, or while the visit was tried again.
LATE = timedelta(days=1)


@dataclass(slots=True)
class Decided:
    outcome: Outcome
    #: By field; none, where nothing differs.
    changes: dict[str, Any]
    timer: datetime | None
    state: Keep | tuple[str, bytes] | None
    #: What to apply to a fresh version, should this one be of yesterday.
    patch: Patch | None


def process(
    definition: Definition, loaded: Loaded, stored: Stored | None, now: datetime, call: Call = direct
) -> Decided:
    """What `process` raises is raised; what it returns and cannot be saved is a `BadOutcome`."""
    outcome = called_at(now, call, definition.process, loaded.entity, unpack(definition, stored))
    match outcome:
        case Untouched():
            changes = {}
        case Updated():
            changes = _updated(definition, loaded, outcome)
        case Patch():
            changes = _patched(definition, loaded, outcome)
        case _:
            raise _refusal(
                definition,
                loaded,
                f"process returned {_shown(outcome)}: return Untouched(), Updated(entity) or Patch({{…}})",
            )
    state = outcome.state
    return Decided(
        outcome,
        changes,
        None if outcome.timer is None else _timer(definition, loaded, outcome.timer, now),
        state if state is KEEP or state is None else pack(definition, loaded.id, state),
        outcome if isinstance(outcome, Patch) else None,
    )


def _updated(definition: Definition, loaded: Loaded, outcome: Updated) -> dict[str, Any]:
    try:
        return definition.kind.store.changes(loaded, outcome.entity)
    except BadOutcome as error:
        raise _refusal(definition, loaded, str(error)) from None


def _patched(definition: Definition, loaded: Loaded, patch: Patch) -> dict[str, Any]:
    store = definition.kind.store
    try:
        store.read(loaded, checked_names("reads", patch.reads))
        if not isinstance(patch.set, Mapping):
            raise BadRequest(
                f"Patch({patch.set!r:.100}) must map attributes to new values, as in Patch({{'status': 1}})"
            )
        return store.patched(loaded, patch.set)
    except BadRequest as error:
        raise _refusal(definition, loaded, str(error)) from None


def _timer(definition: Definition, loaded: Loaded, timer: datetime | timedelta, now: datetime) -> datetime:
    try:
        at = moment("timer", timer, now)
    except ValueError as error:
        raise _refusal(definition, loaded, str(error)) from None
    if at >= now:
        return at
    if at < now - LATE:
        raise _refusal(definition, loaded, f"timer {timer!r:.100} lies more than a day in the past: write a later one")
    return now


def _shown(value: object) -> str:
    try:
        return f"{value!r:.100}"
    except Exception:  # noqa: BLE001 - what says nothing of itself must not hide whose it is
        return f"an object of {type(value).__qualname__}"


def _refusal(definition: Definition, loaded: Loaded, reason: str) -> BadOutcome:
    return BadOutcome(f"{definition.whose(loaded.id)}: {reason}")
