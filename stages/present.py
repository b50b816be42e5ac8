"""The time of a visit, for the stage that makes it: `stages.now()`. Pure, but for calls outside of any visit.

A stage that compares a time with that of its own machine may be called by a timer that, there, has not come yet; and it
could not be tested without waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

_present: ContextVar[datetime | None] = ContextVar("present", default=None)


def now() -> datetime:
    """When this call of `should_process` or `process` began, by the clock of the database; in tests, by that of the
    test. Elsewhere, the time of this machine."""
    return _present.get() or datetime.now(UTC)


def called_at(
    time: datetime, call: Callable[..., Any], function: Callable[[Any, Any], Any], entity: Any, state: Any
) -> Any:
    """What the call of a user's function comes to, at a time."""
    token = _present.set(time)
    try:
        return call(function, entity, state)
    finally:
        _present.reset(token)
