"""`@actor` and `@decider`: functions whose calls are tasks of processes. The functions stay what they are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar, overload

from app.checks import check_limits, checked_count, checked_span, checked_word, importable_name
from app.errors import BadRequest
from app.registry import Function, registry
from processes.definition import (
    RESTARTS,
    WHEN_INCONSISTENT,
    Definition,
    Retry,
    call_signature,
    checked_name,
    declared,
    fail_names,
    optional_span,
)
from processes.model import queue_of

F = TypeVar("F", bound=Callable[..., Any])
Span = str | float | timedelta
FailTypes = Iterable[type[BaseException] | str]

FIVE = Retry(max_attempts=5)
_STARTED_BY = "a process does, when it comes to that; to start one: processes.start, or 'tidemill process start'"


@overload
def actor(function: F, /) -> F: ...


@overload
def actor(
    function: None = None,
    /,
    *,
    name: str | None = None,
    work_timeout: Span = "1min",
    accept_first: bool = True,
    restart_after_work_timeout: bool = True,
    max_restarts: int = 10,
    task_timeout: Span | None = None,
    force_finish_after_task_timeout: bool = False,
    retry: Retry = FIVE,
    fail_types: FailTypes = (),
    repeatable: bool = True,
    outside: bool = False,
    max_parallel: int | None = None,
    rate_limit: str | None = None,
) -> Callable[[F], F]: ...


def actor(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    work_timeout: Span = "1min",
    accept_first: bool = True,
    restart_after_work_timeout: bool = True,
    max_restarts: int = 10,
    task_timeout: Span | None = None,
    force_finish_after_task_timeout: bool = False,
    retry: Retry = FIVE,
    fail_types: FailTypes = (),
    repeatable: bool = True,
    outside: bool = False,
    max_parallel: int | None = None,
    rate_limit: str | None = None,
) -> Any:
    """Declares that the function does a step of processes.

    `work_timeout`: how long one hand-out may take. `accept_first`: the first good result is taken, whichever hand-out
    it is from. `restart_after_work_timeout`: hand it out again, at most `max_restarts` times; otherwise the time that
    ran out is an error like any other. `task_timeout`: how long the task may wait to be handed out;
    `force_finish_after_task_timeout`: even while an actor works on it. `retry` follows errors, but those of
    `fail_types`, which are results: they arrive as a `Failure`. `repeatable=False`: an operator who restarts a
    process has to agree to its being called again. `outside`: who polls for it does it (P10).
    """

    def declare(function: F) -> F:
        task = _name_of(function, "actors")
        return _declare(
            function,
            task,
            _flag(task, "outside", outside),
            name=name,
            decider=False,
            accept_first=_flag(task, "accept_first", accept_first),
            work_timeout=checked_span(task, "work_timeout", work_timeout, "100ms"),
            restart_after_work_timeout=_flag(task, "restart_after_work_timeout", restart_after_work_timeout),
            max_restarts=checked_count(task, "max_restarts", max_restarts, RESTARTS),
            task_timeout=optional_span(task, "task_timeout", task_timeout, "100ms"),
            force_finish_after_task_timeout=_flag(
                task, "force_finish_after_task_timeout", force_finish_after_task_timeout
            ),
            retry=_retry(task, retry),
            fail_types=fail_names(task, fail_types),
            repeatable=_flag(task, "repeatable", repeatable),
            max_parallel=max_parallel,
            rate_limit=rate_limit,
            **_of_processes(task),
        )

    return declare if function is None else declare(_function(function, "actor"))


@overload
def decider(function: F, /) -> F: ...


@overload
def decider(
    function: None = None,
    /,
    *,
    name: str | None = None,
    process_timeout: Span | None = None,
    idle_process_timeout: Span = "10min",
    work_timeout: Span = "1min",
    max_restarts: int = 10,
    retry: Retry = FIVE,
    fail_types: FailTypes = (),
    repeatable: bool = True,
    retention: Span = "30d",
    when_inconsistent: str = "break",
    max_parallel: int | None = None,
    rate_limit: str | None = None,
) -> Callable[[F], F]: ...


def decider(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    process_timeout: Span | None = None,
    idle_process_timeout: Span = "10min",
    work_timeout: Span = "1min",
    max_restarts: int = 10,
    retry: Retry = FIVE,
    fail_types: FailTypes = (),
    repeatable: bool = True,
    retention: Span = "30d",
    when_inconsistent: str = "break",
    max_parallel: int | None = None,
    rate_limit: str | None = None,
) -> Any:
    """Declares that the function says what is to be done: it is given a `Flow` first, and makes calls with it.

    A process that begins with it is of its type: broken when it takes longer than `process_timeout`, looked at by
    recovery when nothing changed for `idle_process_timeout`, and forgotten `retention` after its end.
    `repeatable=False`: an operator who restarts it has to agree to its being called again.
    """

    def declare(function: F) -> F:
        task = _name_of(function, "deciders")
        return _declare(
            function,
            task,
            outside=False,
            name=name,
            decider=True,
            accept_first=True,
            work_timeout=checked_span(task, "work_timeout", work_timeout, "100ms"),
            restart_after_work_timeout=True,
            max_restarts=checked_count(task, "max_restarts", max_restarts, RESTARTS),
            task_timeout=None,
            force_finish_after_task_timeout=False,
            retry=_retry(task, retry),
            fail_types=fail_names(task, fail_types),
            repeatable=_flag(task, "repeatable", repeatable),
            max_parallel=max_parallel,
            rate_limit=rate_limit,
            **_of_processes(task, process_timeout, idle_process_timeout, retention, when_inconsistent),
        )

    return declare if function is None else declare(_function(function, "decider"))


def _of_processes(
    task: str, timeout: Any = None, idle: Any = "10min", retention: Any = "30d", when_inconsistent: Any = "break"
) -> dict[str, Any]:
    return {
        "process_timeout": optional_span(task, "process_timeout", timeout, "100ms"),
        "idle_process_timeout": checked_span(task, "idle_process_timeout", idle, "1s"),
        "retention": checked_span(task, "retention", retention),
        "when_inconsistent": checked_word(task, "when_inconsistent", when_inconsistent, WHEN_INCONSISTENT),
    }


def _declare(function: F, task: str, outside: bool, *, name: str | None, decider: bool, **words: Any) -> F:  # noqa: FBT001
    check_limits(task, words["max_parallel"], words["rate_limit"])
    short = checked_name(function.__name__ if name is None else name)
    before = declared.get(short)
    if before is not None and before.task != task:
        raise BadRequest(
            f"{task} and {before.task} are both named {short!r}, which is by what tasks and queues name them: "
            "give one of them another, as in @actor(name='…')"
        )
    made = Definition(
        name=short,
        task=task,
        module=function.__module__,
        decider=decider,
        outside=outside,
        function=function,
        signature=call_signature(task, function, decider=decider),
        **words,
    )
    declared[short] = made
    function.tidemill_actor = short  # type: ignore[attr-defined]
    if not outside:
        registry.add_function(Function(task, function, queue_of(short), started_by=_STARTED_BY, quiet=True))
    return function


def _name_of(function: Any, plural: str) -> str:
    if not inspect.isfunction(function):
        raise BadRequest(f"{function!r:.100} is no function: @actor and @decider stand above 'def'")
    if function.__name__ == "<lambda>":
        raise BadRequest(f"a lambda of {function.__module__} has no name to be found by: write a function with 'def'")
    return importable_name(function, plural)


def _function(function: Any, word: str) -> Any:
    if not callable(function):
        raise BadRequest(f"@{word}({function!r:.100}): options are named, as in @{word}(work_timeout='5min')")
    return function


def _flag(task: str, option: str, value: Any) -> bool:
    if type(value) is not bool:
        raise BadRequest(f"{task}: {option}={value!r:.100} must be True or False")
    return value


def _retry(task: str, value: Any) -> Retry:
    if not isinstance(value, Retry):
        raise BadRequest(f"{task}: retry={value!r:.100} must be a Retry, such as Retry(max_attempts=5)")
    return value
