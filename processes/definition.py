"""What `@actor` and `@decider` say, checked when the module is imported. Pure."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from app.checks import check_plain, checked_count, checked_span
from app.clock import duration
from app.errors import BadRequest
from app.near import nearest, shown

NAME_LIMIT = 100
#: Where a name is not found.
NAMED_MOST = 10
ATTEMPTS = range(1, 1001)
RESTARTS = range(1001)
WHEN_INCONSISTENT = ("break", "restart")
#: What only the first task of a process has, and what an actor has not.
OF_PROCESSES = ("process_timeout", "idle_process_timeout", "retention", "when_inconsistent")
#: The settings that an operator may change.
SETTINGS = (
    *("accept_first", "work_timeout", "restart_after_work_timeout", "max_restarts"),
    *("task_timeout", "force_finish_after_task_timeout", "retry", "fail_types", "repeatable"),
    *OF_PROCESSES,
)


@dataclass(frozen=True)
class Retry:
    """How often a task is tried, and how long after a failure: `delay`, then `factor` times as long each time, up to
    `most`."""

    max_attempts: int = 5
    delay: str | float | timedelta = "1s"
    factor: float = 2.0
    most: str | float | timedelta = "5min"

    def __post_init__(self) -> None:
        checked_count("Retry", "max_attempts", self.max_attempts, ATTEMPTS)
        for option in ("delay", "most"):
            object.__setattr__(self, option, checked_span("Retry", option, getattr(self, option)))
        if type(self.factor) not in (int, float) or not math.isfinite(self.factor) or not 1 <= self.factor <= 100:
            raise BadRequest(f"Retry: factor={self.factor!r:.100} must be a number from 1 to 100")

    def after(self, failures: int) -> timedelta | None:
        """How long after so many failures it is tried again; None: not any more."""
        if failures >= self.max_attempts:
            return None
        first, most = duration(self.delay).total_seconds(), duration(self.most).total_seconds()
        # The exponent in bounds: the power of a long row of failures is no number any more.
        return timedelta(seconds=min(most, first * self.factor ** min(failures - 1, 64)))

    def words(self) -> dict[str, Any]:
        return {
            "max_attempts": self.max_attempts,
            "delay": duration(self.delay).total_seconds(),
            "factor": self.factor,
            "most": duration(self.most).total_seconds(),
        }

    @classmethod
    def of(cls, words: Mapping[str, Any]) -> Retry:
        return cls(words["max_attempts"], words["delay"], words["factor"], words["most"])


@dataclass(frozen=True)
class Definition:
    """Of an actor, or of a decider, which is one that also says what is to be done next."""

    #: By which tasks, queues and processes name it.
    name: str
    #: Of the Celery task.
    task: str
    module: str
    decider: bool
    #: Its work is done elsewhere: by who polls for it.
    outside: bool
    function: Callable[..., Any]
    #: Of a call: without the flow of a decider.
    signature: inspect.Signature
    accept_first: bool
    work_timeout: timedelta
    restart_after_work_timeout: bool
    max_restarts: int
    task_timeout: timedelta | None
    force_finish_after_task_timeout: bool
    retry: Retry
    fail_types: tuple[str, ...]
    #: Whether a restart may call it again without being told that this is meant.
    repeatable: bool
    process_timeout: timedelta | None
    idle_process_timeout: timedelta
    retention: timedelta
    when_inconsistent: str
    max_parallel: int | None
    rate_limit: str | None

    def settings(self) -> dict[str, Any]:
        """As they are stored."""
        return {name: getattr(self, name) for name in SETTINGS} | {
            "retry": self.retry.words(),
            "fail_types": list(self.fail_types),
        }


#: By name, those of all modules that were imported.
declared: dict[str, Definition] = {}


def definition_of(function: Any) -> Definition:
    """Of a function that was declared."""
    name = getattr(function, "tidemill_actor", None)
    found = declared.get(name) if isinstance(name, str) else None
    if found is None:
        what = getattr(function, "__qualname__", None) or shown(str(function))
        raise BadRequest(f"{what} is neither an actor nor a decider: put @actor or @decider above it")
    return found


def decider_named(name: str) -> Definition | None:
    found = declared.get(name)
    return found if found is not None and found.decider else None


def checked_name(name: Any) -> str:
    # Celery takes a comma in the name of a queue for two queues.
    if type(name) is not str or not name.strip() or len(name) > NAME_LIMIT or not name.isprintable() or "," in name:
        raise BadRequest(f"name={name!r:.200} must be printable text of 1 to {NAME_LIMIT} characters without a comma")
    return name


def call_signature(task: str, function: Callable[..., Any], *, decider: bool) -> inspect.Signature:
    check_plain(task, function)
    found = inspect.signature(function)
    if not decider:
        return found
    parameters = [*found.parameters.values()]
    if not parameters or parameters[0].kind not in _POSITIONAL or any(map(_is_flow, parameters[1:])):
        raise BadRequest(f"{task}: a decider is given its flow first: def {function.__name__}(flow: Flow, …)")
    return found.replace(parameters=parameters[1:])


def _is_flow(parameter: inspect.Parameter) -> bool:
    said = parameter.annotation
    return str(getattr(said, "__name__", said)).rpartition(".")[2] == "Flow"


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def fail_names(whose: str, types: Any) -> tuple[str, ...]:
    """The names of errors: that of a class stands for all classes made of it."""
    listed = isinstance(types, Iterable) and not isinstance(types, str | bytes)
    found = []
    for each in types if listed else [types]:
        if isinstance(each, type) and issubclass(each, BaseException):
            found.append(each.__name__)
        elif type(each) is str and each.strip() and len(each) <= NAME_LIMIT and each.isprintable():
            found.append(each)
        else:
            raise BadRequest(f"{whose}: fail_types={each!r:.100}: list classes of exceptions, or their names")
    return tuple(dict.fromkeys(found))


def optional_span(whose: str, option: str, value: Any, least: str = "1s") -> timedelta | None:
    """None and zero mean that it is off."""
    if value is None:
        return None
    span = checked_span(whose, option, value)
    return checked_span(whose, option, value, least) if span else None


def unknown(kind: str, name: str, names: Iterable[str]) -> str:
    every = sorted(names)
    near = nearest(name, every)
    more = f", … and {len(every) - NAMED_MOST} more" if len(every) > NAMED_MOST else ""
    known = (", ".join(every[:NAMED_MOST]) or "none") + more
    return f"there is no {kind} {shown(name)}: " + (f"did you mean {near}?" if near else f"there is {known}")
