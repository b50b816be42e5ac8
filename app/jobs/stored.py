"""JSON of jobs as somebody has written it, who need not have been Python: what cannot be read is told as its text, and
stops nobody from reading what stands beside it."""

from __future__ import annotations

import json
import math
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSON

#: Deeper than this, some that can be read cannot be written again.
DEPTH = 100


class Stored(sa.TypeDecorator[Any]):
    """`json` of Postgres, which takes numbers, depths and halves of surrogate pairs that Python does not. It comes as
    text: the driver would raise for a whole page of rows."""

    impl = JSON
    cache_ok = True

    def column_expression(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return sa.type_coerce(sa.cast(column, sa.Text), self)

    def process_result_value(self, value: Any, dialect: object) -> Any:  # noqa: ARG002
        return read(value)


def read(text: str | None) -> Any:
    """What Python cannot read, or write again as UTF-8: `{"$text": "[1e400]"}`."""
    if text is None:
        return None
    try:
        value = json.loads(text, parse_float=_finite)
        if "\\ud" in text.lower() or text.count("[") + text.count("{") > DEPTH:
            _check(value, DEPTH)
    except (ValueError, RecursionError):
        return {"$text": text}
    return value


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(text)
    return found


def _check(value: Any, depth: int) -> None:
    match value:
        case str():
            value.encode()
        case list() | dict():
            if not depth:
                raise RecursionError
            for each in value:
                _check(each, depth - 1)
            for each in value.values() if isinstance(value, dict) else ():
                _check(each, depth - 1)
        case _:
            pass
