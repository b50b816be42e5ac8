"""What decorators and calls are given, checked: each refusal names whose option it is, and the value. Pure.

`whose` begins the sentence, such as the name of the task.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from app.clock import Rate, duration
from app.errors import BadRequest, TooLarge

P = ParamSpec("P")
R = TypeVar("R")
MOST_PARALLEL = 100_000
#: Of long work: what is slower never ends.
SLOWEST = Rate.parse("1/d")


def checked_span(whose: str, option: str, value: Any, least: str = "0s") -> timedelta:
    try:
        span = duration(value)
    except ValueError as error:
        raise BadRequest(f"{whose}: {option}: {error}") from None
    if not duration(least) <= span <= timedelta(days=36_500):
        raise BadRequest(f"{whose}: {option}={value!r} must be {least} or more, and less than a hundred years")
    return span


def checked_count(whose: str, option: str, value: Any, allowed: range) -> int:
    if type(value) is not int or value not in allowed:
        raise BadRequest(f"{whose}: {option}={value!r:.100} must be a whole number from {allowed[0]} to {allowed[-1]}")
    return value


def limited(run_once: Callable[P, R]) -> Callable[P, R]:
    """For passes: their `limit`, which comes first, is checked before it goes into statements."""

    @wraps(run_once)
    def checked(*args: P.args, **words: P.kwargs) -> R:
        given = args[:1] or [words[name] for name in ("limit",) if name in words]
        for limit in given:
            checked_count("run_once", "limit", limit, range(2**31))
        return run_once(*args, **words)

    return checked


def checked_word(whose: str, option: str, value: Any, words: tuple[str, ...]) -> str:
    if value not in words:
        raise BadRequest(f"{whose}: {option}={value!r:.100} must be one of {', '.join(words)}")
    return str(value)


def checked_line(whose: str, option: str, value: Any, most: int) -> str:
    """Text that can be shown on a line."""
    if type(value) is not str or not value.strip() or not value.isprintable():
        raise BadRequest(f"{whose}: {option}={value!r:.100} must be printable text on one line that is not empty")
    if len(value) > most:
        raise TooLarge(f"{whose}: {option} is {len(value)} characters long, more than {most}")
    return value


def check_limits(whose: str, max_parallel: Any, rate_limit: Any) -> None:
    if max_parallel is not None and (type(max_parallel) is not int or not 1 <= max_parallel <= MOST_PARALLEL):
        raise BadRequest(
            f"{whose}: max_parallel={max_parallel!r:.100} must be a whole number from 1 to {MOST_PARALLEL}, or None "
            "for no limit"
        )
    if rate_limit is not None:
        if not isinstance(rate_limit, str):
            raise BadRequest(f"{whose}: rate_limit={rate_limit!r:.100} must be text such as '10/min', or None")
        try:
            Rate.parse(rate_limit)
        except ValueError as error:
            raise BadRequest(f"{whose}: rate_limit: {error}") from None


def checked_speed(rate: str | None) -> float | None:
    """Of long work, a second."""
    if rate is None:
        return None
    try:
        speed = Rate.parse(rate).per_second
    except (TypeError, ValueError) as error:
        raise BadRequest(f"rate: {error}") from None
    if speed < SLOWEST.per_second:
        raise BadRequest(f"rate={rate!r:.100} is slower than {SLOWEST}: pause the work instead")
    return speed


def check_plain(whose: str, function: Callable[..., Any]) -> None:
    """Calling it does its work, and it has a name."""
    if getattr(function, "__name__", "") == "<lambda>":
        raise BadRequest(f"{whose} is a lambda: write a function with 'def'")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        kind = "an async function" if inspect.iscoroutinefunction(function) else "a generator"
        raise BadRequest(
            f"{whose} is {kind}: calling it does nothing; write a plain function with 'def' and without 'yield'"
        )


def importable_name(thing: Any, plural: str) -> str:
    """Of a function or a class that a worker finds by importing its module."""
    if thing.__module__ == "__main__":
        raise BadRequest(f"{thing.__qualname__} lies in a script: workers find {plural} by importing a module")
    if "<locals>" in thing.__qualname__:
        raise BadRequest(f"{thing.__qualname__} lies within a function: workers find {plural} by importing a module")
    return f"{thing.__module__}.{thing.__qualname__}"


def encodable(text: str) -> bool:
    """As UTF-8, so that a database takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True
