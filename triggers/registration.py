"""`@reactive`: a task that starts when its trigger fires."""

from __future__ import annotations

import inspect
import logging
import shlex
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from app.checks import checked_count, checked_span, checked_word, importable_name
from app.errors import BadRequest
from app.registry import Function, registry
from triggers import definition
from triggers.ctl import Parameter
from triggers.definition import Definition, queue_of
from triggers.trigger import Trigger

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

#: By name, those of all modules that were imported.
declared: dict[str, Definition] = {}
_bodies: dict[str, Any] = {}


def reactive(
    trigger: Trigger,
    *,
    pool: str = "default",
    priority: int = 0,
    produces: Iterable[Parameter] | None = None,
    min_interval: str | float | timedelta | None = None,
    first_run: str = "fire",
    on_lapse: str = "drop",
    max_failures: int = 5,
    backoff: str | float | timedelta = "5s",
    time_limit: str | float | timedelta | None = None,
) -> Callable[[F], F]:
    """Declares that the function, or the Celery task, is started by a trigger. The function stays what it is.

    `min_interval`: the least time between the starts of two runs. `first_run="baseline"`: what is there at first is
    taken for seen. `on_lapse`: whether a run is dropped or made whose trigger does not hold any more when a worker
    takes it. After `max_failures` in a row, with a pause of `backoff` that doubles, the task is quarantined.
    """

    definition.refuse_no_trigger(trigger)

    def declare(function: F) -> F:
        celery_task = hasattr(function, "apply_async")
        name = _name_of(function, celery_task)
        interval = None if min_interval is None else checked_span(name, "min_interval", min_interval)
        limit = None if time_limit is None else checked_span(name, "time_limit", time_limit, "1s")
        body = getattr(function, "run", function) if celery_task else function
        made = Definition(
            name=name,
            module=getattr(body, "__module__", "") or "",
            takes_run=definition.takes_run(name, body),
            trigger=definition.checked_trigger(name, trigger, interval),
            pool=definition.checked_pool(pool),
            priority=checked_count(name, "priority", priority, definition.PRIORITIES),
            produces=definition.checked_produces(name, produces),
            min_interval=interval,
            first_run=checked_word(name, "first_run", first_run, definition.FIRST_RUN),
            on_lapse=checked_word(name, "on_lapse", on_lapse, definition.ON_LAPSE),
            max_failures=checked_count(name, "max_failures", max_failures, range(1, 1001)),
            backoff=checked_span(name, "backoff", backoff),
            time_limit=limit,
            code=definition.fingerprint(body),
        )
        _refuse_twice(name, body)
        declared[name] = made
        seconds = None if limit is None else limit.total_seconds()
        started_by = f"its trigger starts it; by hand: tidemill reactive run {shlex.quote(name)}"
        registry.add_function(Function(name, None if celery_task else function, queue_of(pool), seconds, started_by))
        return function

    return declare


def _refuse_twice(name: str, body: Any) -> None:
    """Of two triggers of one function, or two functions of one name, only the last would count."""
    before, _bodies[name] = _bodies.get(name), body
    if before is body and name in declared:
        raise BadRequest(f"{name} stands under @reactive twice: join its triggers with Any(…) or All(…)")
    here, there = (getattr(each, "__code__", None) for each in (body, before))
    if here and there and here.co_filename == there.co_filename and here.co_firstlineno != there.co_firstlineno:
        log.warning(
            "%s is declared in lines %s and %s of its module: only the latter counts; give one of them another name",
            *(name, there.co_firstlineno, here.co_firstlineno),
        )


def _name_of(function: Any, celery_task: bool) -> str:  # noqa: FBT001
    if celery_task:
        return str(function.name)
    if not inspect.isfunction(function):
        raise BadRequest(f"{function!r:.100} is neither a function nor a Celery task: @reactive(…) stands above 'def'")
    if function.__name__ == "<lambda>":
        raise BadRequest(f"a lambda of {function.__module__} has no name to be found by: write a function with 'def'")
    return importable_name(function, "reactive tasks")
