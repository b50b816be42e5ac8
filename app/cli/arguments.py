"""What may be written for a time, a rate or a number on the command line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from app.clock import Rate, duration, moment
from app.jobs.search import MOST

NONE = "none"


class Moment(click.ParamType[datetime | timedelta]):
    """An ISO time with its zone, or a span, counted from now."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | timedelta:
        if isinstance(value, datetime | timedelta):
            return value
        try:
            return moment(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Past(Moment):
    """The same; a span counts backwards."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        found = super().convert(value, param, ctx)
        try:
            return (found if isinstance(found, datetime) else datetime.now(UTC) - found).astimezone(UTC)
        except OverflowError:
            far = "further away than time goes" if isinstance(found, datetime) else "too long ago"
            self.fail(f"{value!r} is {far}", param, ctx)


class Span(click.ParamType[timedelta]):
    """A duration such as `30s`, of those from `least` to `most`."""

    name = "SPAN"

    def __init__(self, least: str = "0s", most: str | None = None) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        try:
            found = duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if found < duration(self._least) or (self._most is not None and found > duration(self._most)):
            self.fail(f"{value!r} is not a span from {self._least} to {self._most}", param, ctx)
        return found


class RateText(click.ParamType[str]):
    name = "RATE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value != NONE:
            try:
                Rate.parse(str(value))
            except ValueError as error:
                self.fail(str(error), param, ctx)
        return str(value)


class OrNone(click.ParamType[int | str]):
    """A number from `least`, or `none`."""

    name = "N|none"

    def __init__(self, least: int) -> None:
        self._range = click.IntRange(min=least, max=2**31 - 1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        return NONE if value == NONE else int(self._range.convert(value, param, ctx))


def limit_option(default: int, most: int = MOST) -> Callable[[Any], Any]:
    return click.option(
        "--limit", type=click.IntRange(1, most), default=default, show_default=True, help="At most so many."
    )


def changed(**given: Any) -> dict[str, Any]:
    """As functions take it: without what was not said, and None for what is taken away."""
    return {word: None if value == NONE else value for word, value in given.items() if value is not None}


def limits_given(rate: str | None, parallel: int | str | None, burst: float | None) -> dict[str, Any]:
    found = changed(rate=rate, max_parallel=parallel, burst=burst)
    if not found:
        raise click.UsageError("Say what to limit: --rate, --parallel or --burst.")
    return found


def options(*each: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several options as one decorator, in this order."""

    def add(function: Any) -> Any:
        for option in reversed(each):
            function = option(function)
        return function

    return add
