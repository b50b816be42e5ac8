"""What a job carries, checked at the call: a signature's arguments as JSON text, within a limit."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from app.checks import encodable
from app.errors import BadRequest, NotJson, TooLarge

#: Of arguments together, in bytes of JSON. Larger things belong into a table or a store of their own, named by the job.
PAYLOAD_LIMIT = 1024 * 1024
#: Queues of the domains, which know nothing of jobs.
RESERVED = "^(reactive|stage|actor)[.]"
NAME_LIMIT = 500
#: A year of more than four digits is something that Postgres can hold and Python cannot read.
SPAN_LIMIT = timedelta(days=36_525)
#: In no time zone do the years of these have five digits, or lie before the first.
FIRST, LAST = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, tzinfo=UTC)
#: So deep is looked for what has no JSON form.
NESTED = 20
PRIORITIES = range(-32767, 32768)

_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


def as_json(what: str, value: Any) -> str:
    try:
        text = _encode(value)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        part = _refused(value)
        why = "it is no finite number" if isinstance(part, float) else error
        raise NotJson(f"{what}: {_short(part)} has no JSON form: {why}") from None
    return text


def _refused(value: Any) -> Any:
    """The part of it that has no JSON form."""
    for _ in range(NESTED):
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        for part in parts:
            try:
                _encode(part).encode()
            except (TypeError, ValueError, RecursionError):
                value = part
                break
        else:
            break
    return value


def arguments(task: str, args: Any, kwargs: Any) -> tuple[str, str]:
    """Both as JSON text. What JSON cannot hold is refused here, where the caller sees it."""
    args_text = as_json(f"arguments of {task}", list(args)) if args else "[]"
    kwargs_text = as_json(f"keyword arguments of {task}", dict(kwargs)) if kwargs else "{}"
    limited(f"the arguments of {task}", args_text, kwargs_text)
    return args_text, kwargs_text


def limited(what: str, text: str, more: str = "") -> str:
    # Characters first: text that short cannot be over the limit in bytes.
    if (len(text) + len(more)) * 4 > PAYLOAD_LIMIT:
        size = len(text.encode()) + len(more.encode())
        if size > PAYLOAD_LIMIT:
            raise TooLarge(f"{what} take {size} bytes of JSON, more than {PAYLOAD_LIMIT}: store them and pass their id")
    return text


def rank_of(priority: int) -> int:
    """Larger priority runs first, so smaller rank."""
    if type(priority) is not int or priority not in PRIORITIES:
        raise BadRequest(f"priority={_short(priority)} must be a whole number from {PRIORITIES[0]} to {PRIORITIES[-1]}")
    return -priority


def moment(what: str, value: datetime | timedelta | float | None) -> tuple[datetime | None, timedelta | None]:
    """A moment, or a span that the database adds to its own time."""
    match value:
        case None:
            return None, None
        case datetime():
            if value.utcoffset() is None:
                raise BadRequest(
                    f"{what}={value.isoformat()} has no time zone: give one, such as datetime(…, tzinfo=UTC)"
                )
            if not FIRST <= value <= LAST:
                raise BadRequest(f"{what}={value.isoformat()} must lie between the years 2 and 9998")
            # In UTC: Postgres does not read every offset that Python can have.
            return value.astimezone(UTC), None
        case timedelta() if abs(value) <= SPAN_LIMIT:
            return None, value
        case bool():
            pass
        case int() | float():
            with suppress(OverflowError, ValueError):
                if abs(span := timedelta(seconds=value)) <= SPAN_LIMIT:
                    return None, span
        case _:
            pass
    raise BadRequest(
        f"{what}={_short(value)} must be a datetime with a time zone, a timedelta, or seconds, of 100 years at most"
    )


def name(what: str, value: str) -> str:
    if type(value) is not str or not value.strip():
        raise BadRequest(f"{what}={_short(value)} must be text that is not empty")
    if "\x00" in value or not encodable(value):
        raise BadRequest(f"{what}={_short(value)} must be text without NUL, and such as UTF-8 can write")
    if len(value) > NAME_LIMIT:
        raise TooLarge(f"{what} is {len(value)} characters long, more than {NAME_LIMIT}")
    if what == "queue" and "," in value:
        raise BadRequest(f"queue={value!r} has a comma: with -Q, no worker could name it")
    if what == "queue" and (found := re.match(RESERVED, value)):
        raise BadRequest(f"queue={value!r}: jobs cannot go to queues whose name begins with {found[0]!r}")
    return value


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a value whose repr raises must still get its clear error
        text = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    return text if len(text) <= 200 else text[:200] + "…"
