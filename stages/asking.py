"""Asks the stages of a kind which of them want an entity, after a change (S4, S8). Pure.

`should_process` may be wrong in one direction only: what it cannot answer is a yes, and the visit finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from traceback import format_exception_only
from typing import Any

from app.errors import BadOutcome
from stages.definition import Definition
from stages.moments import moment
from stages.present import called_at
from stages.state import Stored, unpack

#: Calls a function of the user with the entity and the state; under limits of time, where there are any.
Call = Callable[[Callable[[Any, Any], Any], Any, Any], Any]


def direct(function: Callable[[Any, Any], Any], entity: Any, state: Any) -> Any:
    return function(entity, state)


@dataclass(slots=True)
class Wish:
    stage: str
    at: datetime
    #: Why it could not be answered; the entity is visited at once then.
    failure: str | None


def ask(
    definitions: Iterable[Definition],
    entity: Any,
    states: Mapping[str, Stored],
    fields: frozenset[str] | None,
    now: datetime,
    call: Call = direct,
) -> list[Wish]:
    """Of those that watch one of the changed fields (None: all have changed). `states` by the name of the stage."""
    wishes = []
    for each in definitions:
        if fields is not None and each.watches is not None and each.watches.isdisjoint(fields):
            continue
        try:
            answer = called_at(now, call, each.should_process, entity, unpack(each, states.get(each.name)))
            if answer is not False:
                wishes.append(Wish(each.name, now if answer is True else time_of(answer, now), None))
        except Exception as error:  # noqa: BLE001 - S4: whatever it raises, the entity is visited
            wishes.append(Wish(each.name, now, "".join(format_exception_only(error)).strip()))
    return wishes


def time_of(answer: Any, now: datetime) -> datetime:
    if not isinstance(answer, datetime | timedelta):
        raise BadOutcome(
            f"should_process returned {answer!r:.100}: return True, False, a datetime with a time zone, or a timedelta "
            "from now"
        )
    try:
        return max(now, moment("should_process: the answer", answer, now))
    except ValueError as error:
        raise BadOutcome(str(error)) from None
