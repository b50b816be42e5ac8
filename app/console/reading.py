"""From the bytes and the text of a request to values; what they may be is said by `schemas`. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from app.console import schemas
from app.console.schemas import Schema
from app.errors import BadRequest
from app.near import shown

#: Deeper values are nobody's data, and would exhaust whoever walks through them.
DEPTH = 100
#: Longer numbers are of no field here, and are not even read.
_NUMBER = re.compile(r"-?[0-9]{1,30}", re.ASCII)
_FLAGS = {"true": True, "false": False}


def parse(body: bytes) -> Any:
    """JSON as every program understands it: no NaN, no half of a surrogate pair, not endlessly deep."""
    try:
        value = json.loads(body.decode(), parse_constant=_no_constant, parse_float=_finite)
        _check_plain(value, DEPTH)
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8") from None
    except RecursionError:
        raise BadRequest(f"the body is nested more than {DEPTH} deep") from None
    except json.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except ValueError as error:
        if isinstance(error, BadRequest):
            raise
        raise BadRequest("the body is not JSON that can be read: a number in it has too many digits") from None
    return value


def _no_constant(name: str) -> NoReturn:
    raise BadRequest(f"the body is not JSON: {name} is no number of it")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadRequest(f"the body holds a number that is too large: {text:.30}")
    return value


def _check_plain(value: Any, depth: int) -> None:
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise BadRequest(f"the body holds text with half of a surrogate pair: {shown(value)}") from None
        case list() | dict():
            if not depth:
                raise RecursionError
            for each in value:
                _check_plain(each, depth - 1)
            if isinstance(value, dict):
                for each in value.values():
                    _check_plain(each, depth - 1)
        case _:
            pass


def query(schema: Schema, given: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The fields of a query, each at most once, as the values that they are written for."""
    found: dict[str, Any] = {}
    for name, text in given:
        if name in found:
            raise BadRequest(f"the query has {shown(name)} more than once")
        found[name] = _value(schema["properties"].get(name, {}), text)
    checked: dict[str, Any] = schemas.check(schema, found, "the query")
    return checked


def _value(schema: Schema, text: str) -> Any:
    match schema.get("type"):
        case "integer" if _NUMBER.fullmatch(text):
            return int(text)
        case "boolean":
            return _FLAGS.get(text, text)
        case _:
            return text


def header(schema: Schema, name: str, given: Sequence[str]) -> str | None:
    """The value of a header that may be there once."""
    if len(given) > 1:
        raise BadRequest(f"there are {len(given)} headers {name}: send one")
    if not given:
        return None
    # Some write it as RFC 8941 has strings: in quotes.
    text = given[0][1:-1] if len(given[0]) > 1 and given[0][0] == given[0][-1] == '"' else given[0]
    schemas.check(schema, text, name)
    return text
