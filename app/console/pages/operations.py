"""Operations: something done to many things at once. Listed, watched, steered, and tried again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.clock import Rate
from app.console.web.memory import RememberedBy
from app.console.web.page import REASON, Act, Done, Input, Page, Question, Undo, Visit
from recovery import operations
from recovery.operations import ItemState, Kind, OperationState, Outcomes, Progress
from recovery.operations.starting import RATE

SHOWN = 50
NO_RATE = "none"
#: How often outcomes are counted, for all who look.
OUTCOMES_SECONDS = 2.0

RATE_INPUT = Input("rate", "Rate", RATE, hint="Items in a time, such as 50/s or 10/min; none is as fast as it goes.")


def rate_of(visit: Visit) -> str | None:
    text = visit.form.text("rate") or RATE
    return None if text == NO_RATE else text


def told_rate(rate: float | None) -> str:
    return "as fast as it goes" if rate is None else str(Rate(rate))


def over(found: Progress) -> str:
    """What it is over, in a few words."""
    if found.retry_of is not None:
        return f"what failed of operation {found.retry_of}"
    words = (f"{word}={_value(value)}" for word, value in found.selection.items())
    return ", ".join(words) or "everything"


def _value(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _count(operation_id: int) -> list[Outcomes]:
    return operations.outcomes(operation_id)


_outcomes = RememberedBy(_count, OUTCOMES_SECONDS).kept()


def _listed(visit: Visit) -> Mapping[str, Any]:
    live, kind = visit.query.flag("live"), visit.query.choice("kind", list(Kind))
    wanted = Kind(kind) if kind else None
    found = operations.overview(SHOWN + 1, live=live, kind=wanted, before=visit.query.number("before"))
    older = found[SHOWN - 1].id if len(found) > SHOWN else None
    rows = [(each, over(each), told_rate(each.rate)) for each in found[:SHOWN]]
    return {"rows": rows, "older": older, "live": live, "kind": kind, "kinds": list(Kind)}


def _shown(visit: Visit) -> Mapping[str, Any]:
    operation_id = visit.numbers["operation_id"]
    found = operations.show(operation_id)
    state = visit.query.choice("items", list(ItemState))
    after = visit.query.number("after") or 0
    states = [ItemState(state)] if state else []
    items = operations.items(operation_id, states=states, limit=SHOWN + 1, after=after)
    return {
        "found": found,
        "over": over(found),
        "rate": told_rate(found.rate),
        "outcomes": _outcomes.get(operation_id),
        "items": items[:SHOWN],
        "next": items[SHOWN - 1].position if len(items) > SHOWN else None,
        "states": list(ItemState),
        "state": state,
    }


def _found(visit: Visit) -> Progress:
    return operations.show(visit.numbers["operation_id"])


def _address(operation_id: int) -> str:
    return f"/operations/{operation_id}"


def _is(found: Progress) -> str:
    return f"It is over {over(found)}: {found.ended} of {found.total} items have ended, {found.failed} have failed."


def _ended(found: Progress) -> str | None:
    return f"It is {found.state}." if found.ended_at is not None else None


def _ask_pause(visit: Visit) -> Question:
    found = _found(visit)
    obstacle = _ended(found) or ("It is paused already." if found.state is OperationState.PAUSED else None)
    says = [_is(found), "It ends the batch that it is at, which takes a second at most."]
    title = f"Pause operation {found.id}?"
    return Question(title, says, "Pause", [REASON], obstacle=obstacle, back=_address(found.id))


def _pause(visit: Visit) -> Done:
    number = visit.numbers["operation_id"]
    operations.pause(number, reason=visit.form.text("reason"))
    undo = Undo("resume_operation", {"operation_id": number}, "Resume")
    return Done(f"Operation {number} is paused.", _address(number), undo)


def _ask_resume(visit: Visit) -> Question:
    found = _found(visit)
    rate = Input("rate", "Rate", NO_RATE if found.rate is None else str(Rate(found.rate)), hint=RATE_INPUT.hint)
    title = f"Let operation {found.id} go on?" if found.state is OperationState.PAUSED else "Change the rate?"
    return Question(title, [_is(found)], "Go on", [rate, REASON], obstacle=_ended(found), back=_address(found.id))


def _resume(visit: Visit) -> Done:
    number = visit.numbers["operation_id"]
    changes: dict[str, Any] = {"rate": rate_of(visit)} if visit.form.text("rate") else {}
    paused = operations.resume(number, reason=visit.form.text("reason"), **changes)
    undo = Undo("pause_operation", {"operation_id": number}, "Pause") if paused else None
    return Done(f"Operation {number} goes on.", _address(number), undo)


def _ask_cancel(visit: Visit) -> Question:
    found = _found(visit)
    says = [_is(found), "What was done stays done; what waits is left alone. It cannot be resumed."]
    title = f"Cancel operation {found.id}?"
    return Question(title, says, "Cancel it", [REASON], danger=True, obstacle=_ended(found), back=_address(found.id))


def _cancel(visit: Visit) -> Done:
    number = visit.numbers["operation_id"]
    operations.cancel(number, reason=visit.form.text("reason"))
    found = operations.show(number)
    return Done(
        f"Operation {number} is cancelled; {found.total - found.ended} of {found.total} are left alone.",
        _address(number),
    )


def _ask_retry(visit: Visit) -> Question:
    found = _found(visit)
    obstacle = "Nothing of it has failed." if not found.failed else None
    if found.state is OperationState.RUNNING:
        obstacle = "It still runs: wait for its end, or pause it."
    title = f"Try {found.failed} that have failed again?"
    says = [_is(found), "They become an operation of their own."]
    return Question(title, says, "Try again", [RATE_INPUT, REASON], obstacle=obstacle, back=_address(found.id))


def _retry(visit: Visit) -> Done:
    number = visit.numbers["operation_id"]
    made = operations.retry(number, rate=rate_of(visit), reason=visit.form.text("reason"))
    undo = Undo("cancel_operation", {"operation_id": made}, "Cancel it")
    return Done(f"Operation {made} tries again what has failed of operation {number}.", _address(made), undo)


def started(made: int, what: str) -> Done:
    """For pages that start one."""
    undo = Undo("pause_operation", {"operation_id": made}, "Pause it")
    return Done(f"Operation {made} is started: {what}.", _address(made), undo)


PAGES = (
    Page("operations", "/operations", "operations.html", _listed),
    Page("operation", "/operations/{operation_id}", "operation.html", _shown),
)
ACTS = (
    Act("pause_operation", "/operations/{operation_id}/pause", _ask_pause, _pause),
    Act("resume_operation", "/operations/{operation_id}/resume", _ask_resume, _resume),
    Act("cancel_operation", "/operations/{operation_id}/cancel", _ask_cancel, _cancel),
    Act("retry_operation", "/operations/{operation_id}/retry", _ask_retry, _retry),
)
