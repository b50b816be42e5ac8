"""What `@reactive` says of a task, checked when the module is imported."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from app.checks import check_plain
from app.errors import BadRequest
from triggers.ctl import Parameter, checked_name
from triggers.trigger import All, CtlTrigger, Trigger
from triggers.trigger import Any as AnyOf

FIRST_RUN, ON_LAPSE = ("fire", "baseline"), ("drop", "run")
#: So that what waits can age: a rank is a small integer.
PRIORITIES = range(-1000, 1001)
POOL_LIMIT = 100
PREFIX = "reactive"


def queue_of(pool: str) -> str:
    return f"{PREFIX}.{pool}"


@dataclass(frozen=True)
class Definition:
    name: str
    module: str
    #: Called with the run, or with nothing if it takes no argument.
    takes_run: bool
    trigger: Trigger
    pool: str
    priority: int
    #: None: anything may be advanced.
    produces: tuple[Parameter, ...] | None
    min_interval: timedelta | None
    first_run: str
    on_lapse: str
    max_failures: int
    backoff: timedelta
    time_limit: timedelta | None
    code: str

    @property
    def queue(self) -> str:
        return queue_of(self.pool)


def refuse_no_trigger(trigger: object) -> None:
    """At once: a decorator without one would put itself in the place of the function, and nobody would hear of it."""
    if not isinstance(trigger, CtlTrigger | All | AnyOf):
        raise BadRequest(
            f"{trigger!r:.100} is not a trigger: write one such as new_day('dds.orders', 'loaded_to'), "
            f"as in @reactive(new_day('dds.orders', 'loaded_to'))"
        )


def checked_trigger(task: str, trigger: Trigger, min_interval: timedelta | None) -> Trigger:
    # T10
    if not trigger.latched and min_interval is None:
        raise BadRequest(
            f"{task}: its trigger does not rest on what the task has seen, so the task would start again as soon as it "
            "ends, for as long as the trigger holds. Say how long to wait between two starts (min_interval='1h'), "
            "or that running again at once is meant (min_interval='0s'), or add a Delta or ChunkDelta with All"
        )
    return trigger


def checked_pool(name: Any) -> str:
    # Celery takes a comma in the name of a queue for two queues.
    if type(name) is not str or not name.strip() or len(name) > POOL_LIMIT or not name.isprintable() or "," in name:
        raise BadRequest(f"pool={name!r:.200} must be printable text of 1 to {POOL_LIMIT} characters without a comma")
    return name


def checked_produces(task: str, produces: Any) -> tuple[Parameter, ...] | None:
    if produces is None:
        return None
    found = []
    listed = isinstance(produces, Iterable) and not isinstance(produces, str | bytes)
    for each in produces if listed else [produces]:
        if not isinstance(each, tuple) or len(each) != 2:
            raise BadRequest(
                f"{task}: produces={each!r:.100}: list pairs, as in produces=[('mart.orders', 'built_to')]"
            )
        found.append(checked_name(*each))
    return tuple(dict.fromkeys(found))


def takes_run(task: str, function: Callable[..., Any]) -> bool:
    """Whether it is called with the run; a task that knows nothing of runs is called with nothing."""
    check_plain(task, function)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    needed = [each for each in parameters if each.default is each.empty and each.kind not in _MORE]
    positional = [each for each in needed if each.kind is not inspect.Parameter.KEYWORD_ONLY]
    if len(needed) > 1 or len(positional) != len(needed):
        raise BadRequest(
            f"{task}: a reactive task is called with its run, or with nothing: it takes {len(needed)} arguments"
        )
    return bool(needed) or any(_wants_run(each) for each in parameters)


def _wants_run(parameter: inspect.Parameter) -> bool:
    """Of one that need not be given."""
    by_name = parameter.name == "run" and parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    return by_name or parameter.kind is inspect.Parameter.VAR_POSITIONAL


_MORE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def fingerprint(function: Any) -> str:
    """Of the source: what a release must change for a quarantined task to be tried again."""
    try:
        text = inspect.getsource(function).encode()
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        text = b"" if code is None else code.co_code + repr(code.co_consts).encode()
    return hashlib.sha256(text).hexdigest()[:16]
