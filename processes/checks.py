"""What an operator sets of an actor, checked as what its code says is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.checks import check_limits, checked_count, checked_span, checked_word
from app.errors import BadRequest
from processes.definition import (
    OF_PROCESSES,
    RESTARTS,
    SETTINGS,
    WHEN_INCONSISTENT,
    Retry,
    fail_names,
    optional_span,
    unknown,
)
from processes.telling import settings_of

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_NONE = ("", "none", "null", "off")
#: Beside the settings of the code, those of its queue.
OF_QUEUE = ("blocked", "max_parallel", "rate_limit")


def checked_settings(name: str, changes: Mapping[str, Any], *, decider: bool) -> dict[str, Any]:
    """Values may be text, as they are typed at a terminal. As they are stored."""
    known = settings_of([*SETTINGS, *OF_QUEUE], decider=decider)
    if not changes:
        raise BadRequest(f"{name}: name at least one setting, as in work_timeout=5min")
    found = {}
    for word, value in changes.items():
        if word in OF_PROCESSES and not decider:
            raise BadRequest(f"{name} is an actor: {word} is a setting of the decider that a process begins with")
        if word not in known:
            raise BadRequest(f"{name}: {unknown('setting', word, known)}")
        found[word] = _CHECKS[word](name, word, value)
    return found


def _flag(name: str, word: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    raise BadRequest(f"{name}: {word}={value!r:.100} must be true or false")


def _count(name: str, word: str, value: Any) -> int:
    return checked_count(name, word, _number(value), RESTARTS)


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value


def _span(name: str, word: str, value: Any) -> Any:
    return checked_span(name, word, value, {"idle_process_timeout": "1s", "retention": "0s"}.get(word, "100ms"))


def _optional_span(name: str, word: str, value: Any) -> Any:
    if isinstance(value, str) and value.lower() in _NONE:
        return None
    return optional_span(name, word, "0s" if value == "0" else value, "100ms")


def _retry(name: str, word: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Retry):
        return value.words()
    number = _number(value)
    if type(number) is not int:
        raise BadRequest(f"{name}: {word}={value!r:.100} must be a number of attempts, as in {word}=5")
    return Retry(number).words()


def _fail_types(name: str, word: str, value: Any) -> list[str]:  # noqa: ARG001
    listed = [each.strip() for each in value.split(",") if each.strip()] if isinstance(value, str) else value
    return list(fail_names(name, listed))


def _inconsistent(name: str, word: str, value: Any) -> str:
    return checked_word(name, word, value, WHEN_INCONSISTENT)


def _limit(name: str, word: str, value: Any) -> Any:
    if isinstance(value, str) and value.lower() in _NONE:
        return None
    found = _number(value) if word == "max_parallel" else value
    check_limits(name, *((found, None) if word == "max_parallel" else (None, found)))
    return found


_CHECKS: dict[str, Callable[[str, str, Any], Any]] = {
    "accept_first": _flag,
    "work_timeout": _span,
    "restart_after_work_timeout": _flag,
    "max_restarts": _count,
    "task_timeout": _optional_span,
    "force_finish_after_task_timeout": _flag,
    "retry": _retry,
    "fail_types": _fail_types,
    "repeatable": _flag,
    "process_timeout": _optional_span,
    "idle_process_timeout": _span,
    "retention": _span,
    "when_inconsistent": _inconsistent,
    "blocked": _flag,
    "max_parallel": _limit,
    "rate_limit": _limit,
}
