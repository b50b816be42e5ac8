"""Arrays of Postgres as text: one parameter for a column of a whole batch.

The driver would write `ARRAY['a', 'b']`, which costs it and the parser of the server twice as much as one string.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from psycopg2 import Binary

from app.arrays import quoted


class NoText(Exception):
    """Only the driver knows how to send such a value."""


def _binary(value: Any) -> str:
    # As the driver wraps it, or bare.
    return "\\x" + bytes(getattr(value, "adapted", value)).hex()


def _interval(value: timedelta) -> str:
    return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"


_TEXT: dict[type, Callable[[Any], str]] = {
    str: str.__str__,
    bool: str,
    int: int.__repr__,
    float: float.__repr__,
    Decimal: str,
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: _interval,
    uuid.UUID: str,
    bytes: _binary,
    bytearray: _binary,
    memoryview: _binary,
    type(Binary(b"")): _binary,
}


def text_of(value: Any) -> str | None:
    """What the server reads as this value; of what the driver would be given."""
    if value is None:
        return None
    if (text := _TEXT.get(type(value))) is not None:
        return text(value)
    for base in type(value).__mro__:
        if base in _TEXT:
            return _TEXT[base](value)
    raise NoText(type(value).__name__)


def array(texts: Iterable[str | None]) -> str:
    """`{"a",NULL,"b"}`"""
    return "{" + ",".join(["NULL" if text is None else quoted(text) for text in texts]) + "}"


def nested(value: Any) -> str | None:
    """Of a value that is a list itself, of any depth."""
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise NoText(type(value).__name__)
    return "{" + ",".join([_element(each) for each in value]) + "}"


def _element(value: Any) -> str:
    if isinstance(value, list | tuple):
        return nested(value) or ""
    text = text_of(value)
    return "NULL" if text is None else quoted(text)
