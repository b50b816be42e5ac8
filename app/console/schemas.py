"""What a request may hold, in the words of JSON Schema: it is checked by these, and OpenAPI publishes them. Pure.

Of JSON Schema, as much as the requests here need.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from app.clock import duration
from app.errors import BadRequest
from app.near import nearest, shown

Schema = Mapping[str, Any]

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
#: As RFC 3339 has it.
_DAY = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d([.]\d{1,9})?", re.ASCII)
_ZONE = re.compile(r"[Zz]|[+-]\d\d:\d\d", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_EXAMPLE = "2026-07-01T12:00:00Z"

INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
TEXT = {"type": "string"}
FLAG = {"type": "boolean"}
UUID = {"type": "string", "format": "uuid"}
MOMENT = {"type": "string", "format": "date-time"}
ANY: Schema = {}
LIST = {"type": "array"}
OBJECT = {"type": "object"}
NAME = {"type": "string", "minLength": 1, "maxLength": 100, "pattern": r"^[^\x00-\x1f\x7f]*$"}
#: Whatever Postgres can compare with.
WORDS = {"type": "string", "minLength": 1, "maxLength": 500, "pattern": r"^[^\x00]*$"}
SPAN = {
    "type": "string",
    "pattern": "^[0-9]{1,6}([.][0-9]{1,6})?(ms|s|min)$",
    "description": "A number and ms, s or min, such as 20s.",
}
LONG_SPAN = {
    "type": "string",
    "pattern": "^[0-9]{1,9}([.][0-9]{1,6})?(ms|s|min|h|d|w)$",
    "description": "A number and ms, s, min, h, d or w, such as 30min.",
}
TIME = {
    "anyOf": [MOMENT, LONG_SPAN],
    "description": f"A time with its zone, such as {_EXAMPLE}, or a span, such as 30min.",
}


def optional(schema: Schema) -> dict[str, Any]:
    """The same or null."""
    return {**schema, "type": [schema["type"], "null"]}


def listing(schema: Schema, most: int | None = None, least: int = 0) -> dict[str, Any]:
    """A list of these."""
    bounds = ({"minItems": least} if least else {}) | ({} if most is None else {"maxItems": most})
    return {**LIST, "items": schema, **bounds}


def mapping(names: Schema, schema: Schema, most: int, least: int = 0) -> dict[str, Any]:
    """An object with names of the caller's."""
    bounds = ({"minProperties": least} if least else {}) | {"maxProperties": most}
    return {**OBJECT, "propertyNames": names, "additionalProperties": schema, **bounds}


def word(*words: str) -> dict[str, Any]:
    """One of these."""
    return {**TEXT, "enum": list(words)}


def record(*required: str, **properties: Schema) -> dict[str, Any]:
    """An object with these fields and no others."""
    found: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return found | ({"required": list(required)} if required else {})


def check(schema: Schema, value: Any, what: str = "the body") -> Any:
    """The value, if it is as the schema says; else `BadRequest`, which names what is wrong. Where a whole number is
    asked for, 1.0 is 1, as it is to JSON Schema."""
    if "anyOf" in schema:
        return _checked_any(schema, value, what)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(value, float) and value.is_integer() and "integer" in kinds:
        value = int(value)
    if kinds and not _is_one_of(kinds, value):
        raise BadRequest(f"{what} must be {' or '.join(_WORDS[kind] for kind in kinds)}, not {_told(value)}")
    match value:
        case bool() | None:
            pass
        case int() | float():
            _check_number(schema, value, what)
        case str():
            _check_text(schema, value, what)
        case list() if "items" in schema:
            _check_size(len(value), schema.get("minItems", 0), schema.get("maxItems"), f"{what} has", "items")
            return [check(schema["items"], each, f"{what}[{number}]") for number, each in enumerate(value)]
        case dict() if "properties" in schema:
            return _checked_record(schema, value, what)
        case dict() if "propertyNames" in schema:
            return _checked_mapping(schema, value, what)
    return value


def _checked_any(schema: Schema, value: Any, what: str) -> Any:
    for each in schema["anyOf"]:
        with suppress(BadRequest):
            return check(each, value, what)
    raise BadRequest(f"{what}={_told(value)} is none of what it may be. {schema.get('description', '')}".rstrip())


def _checked_mapping(schema: Schema, value: Mapping[str, Any], what: str) -> dict[str, Any]:
    _check_size(len(value), schema.get("minProperties", 0), schema.get("maxProperties"), f"{what} has", "fields")
    for name in value:
        check(schema["propertyNames"], name, f"a name in {what}")
    of_all = schema["additionalProperties"]
    return {name: check(of_all, each, f"{what}[{shown(name)}]") for name, each in value.items()}


_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def _is_one_of(kinds: Sequence[str], value: Any) -> bool:
    kind = _kind(value)
    return kind in kinds or (kind == "integer" and "number" in kinds)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _told(value: Any) -> str:
    return shown(value) if isinstance(value, str) else f"{_WORDS[_kind(value)]} ({json.dumps(value):.60})"


def _check_number(schema: Schema, value: float, what: str) -> None:
    least, most = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if not least <= value <= most:
        told = f"between {least} and {most}" if math.isfinite(most) else f"at {least} or above"
        raise BadRequest(f"{what} must lie {told}")


def _check_size(size: int, least: int, most: int | None, what: str, of: str) -> None:
    if size < least or (most is not None and size > most):
        told = f"{least} to {most}" if most is not None else f"{least} or more"
        raise BadRequest(f"{what} {size} {of}: give {told}")


def _check_text(schema: Schema, value: str, what: str) -> None:
    if len(value) > schema.get("maxLength", math.inf):
        raise BadRequest(f"{what} is {len(value)} characters long, more than {schema['maxLength']}")
    if len(value) < schema.get("minLength", 0):
        raise BadRequest(f"{what} is empty")
    if "enum" in schema and value not in schema["enum"]:
        near = nearest(value, schema["enum"])
        hint = "" if near is None else f": did you mean {near}?"
        raise BadRequest(f"{what}={shown(value)} is none of {', '.join(schema['enum'])}{hint}")
    match schema.get("format"):
        case "uuid" if not _UUID.fullmatch(value):
            raise BadRequest(f"{what}={shown(value)} is no uuid")
        case "date-time":
            _check_time(value, what)
        case _:
            pass
    # In full: `$` alone would let a line end follow.
    if (pattern := schema.get("pattern")) and not re.fullmatch(pattern, value):
        hint = f". {schema['description']}" if "description" in schema else ""
        wrong = "has a control character" if _CONTROL.search(value) else "is not written as it must be"
        raise BadRequest(f"{what}={shown(value)} {wrong}{hint}")


def _check_time(value: str, what: str) -> None:
    day = _DAY.match(value)
    zone = value[day.end() :] if day else ""
    if day and not zone:
        raise BadRequest(f"{what}={shown(value)} has no time zone: write {value}Z for UTC, or +03:00 at its end")
    with suppress(ValueError):
        if day and _ZONE.fullmatch(zone):
            moment_of(value)
            return
    raise BadRequest(f"{what}={shown(value)} is no time: write one with its zone, such as {_EXAMPLE}")


def moment_of(text: str) -> datetime:
    """Of text that was checked."""
    return datetime.fromisoformat(text.upper())


def time_of(what: str, text: str) -> datetime | timedelta:
    """The same where it may be a span."""
    try:
        return moment_of(text) if "-" in text else duration(text)
    except ValueError as error:
        raise BadRequest(f"{what}: {error}") from None


#: Whose fields go by their names alone.
_WHOLE = ("the body", "the query")


def _checked_record(schema: Schema, value: Mapping[str, Any], what: str) -> dict[str, Any]:
    known = schema["properties"]
    for name in value:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}" if known else "there are none"
            raise BadRequest(f"{what} has no field {shown(name)}: {hint}")
    if missing := [name for name in schema.get("required", ()) if name not in value]:
        raise BadRequest(f"{what} lacks {', '.join(missing)}")
    if (ways := schema.get("oneOf")) and sum(set(each["required"]) <= value.keys() for each in ways) != 1:
        raise BadRequest(f"{what} must have either {' or '.join(' and '.join(each['required']) for each in ways)}")
    return {
        name: check(known[name], each, name if what in _WHOLE else f"{what}.{name}") for name, each in value.items()
    }
