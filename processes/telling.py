"""How values, calls and settings are told to people: on the command line and on pages. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from app.words import span
from processes.definition import OF_PROCESSES
from processes.promise import Failure
from processes.shown import read_value
from processes.wording import clean

#: Of a value that is shown beside others.
SHORT = 300


def as_json(value: Any) -> Any:
    """A value as a program reads it: an accepted failure stays `{"$failure": {…}}`."""
    match value:
        case Failure():
            return {"$failure": asdict(value)}
        case dict():
            return {key: as_json(each) for key, each in value.items()}
        case list():
            return [as_json(each) for each in value]
        case _:
            return value


def value_text(value: Any, most: int | None = None) -> str:
    """As JSON on one line; what a terminal would obey is written as JSON may write it."""
    text = json.dumps(as_json(value), ensure_ascii=False)
    safe = "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
    return safe if most is None or len(safe) <= most else f"{safe[: most - 1]}…"


def stored(text: str | None) -> Any:
    """Read where it can be read; else the text."""
    try:
        return as_json(read_value(text))
    except (ValueError, RecursionError):
        return text


def stored_text(text: str | None, most: int) -> str:
    if text is None:
        return "null"
    found = stored(text)
    return clean(text, most) if found == text else value_text(found, most)


def called_with(text: str) -> str:
    """Arguments as they would be written in a call."""
    try:
        called = json.loads(text)
        args, kwargs = called["args"], called["kwargs"]
        words = [json.dumps(each, ensure_ascii=False) for each in args]
        words += [f"{name}={json.dumps(each, ensure_ascii=False)}" for name, each in kwargs.items()]
        return clean(", ".join(words), SHORT) or "nothing"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return clean(text, SHORT)


def setting(value: Any) -> str:
    """Of an actor, as it could be typed."""
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case timedelta():
            return span(value)
        case Mapping():
            return _retry(value)
        case list() | tuple():
            return clean(",".join(map(str, value))) or "none"
        case _:
            return clean(str(value))


#: The largest that it is a whole number of is the one that it is typed in.
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))


def typed(value: Any) -> str:
    """A setting as it can be sent back: in a field of a form.

    >>> typed(timedelta(seconds=90)), typed(timedelta(hours=2)), typed(None), typed(["A", "B"])
    ('90s', '2h', 'none', 'A,B')
    """
    match value:
        case timedelta():
            count = round(value.total_seconds() * 1000)
            unit, size = next((each for each in _UNITS if count % each[1] == 0), _UNITS[-1])
            return f"{count // size}{unit}" if count else "0s"
        case Mapping():
            return str(value.get("max_attempts", ""))
        case list() | tuple():
            return ",".join(map(str, value))
        case _:
            return setting(value)


def _retry(words: Mapping[str, Any]) -> str:
    try:
        first, most = (span(timedelta(seconds=words[name])) for name in ("delay", "most"))
        if words["max_attempts"] == 1:
            return "1 attempt"
        return f"{words['max_attempts']} attempts, {first} apart, ×{words['factor']:g} each time, up to {most}"
    except (KeyError, TypeError, ValueError):
        return clean(json.dumps(dict(words)))


_SPANS = ("work_timeout", "task_timeout", "process_timeout", "idle_process_timeout", "retention")


def as_declared(word: str, value: Any) -> Any:
    """What the code says of a setting: spans are stored in seconds."""
    return timedelta(seconds=value) if word in _SPANS and value is not None else value


def settings_of(settings: Iterable[str], *, decider: bool) -> list[str]:
    """The names of those that mean something."""
    return [word for word in settings if decider or word not in OF_PROCESSES]
