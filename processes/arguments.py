"""How the arguments of a task are written, promises included, and read again. Pure.

JSON, in which an object of a single key that begins with `$` means:

    {"$value": 7}       the value of task 7, filled in when the task is handed out, which waits for it
    {"$promise": 7}     the promise itself: the task does not wait
    {"$failure": {…}}   an accepted failure, in the place of a value
    {"$plain": {…}}     an object of the user that has such a key itself
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from app.errors import BadRequest
from app.jobs import payload
from processes.promise import Failure, NoWait, Promise

VALUE, PROMISE, FAILURE, PLAIN = "$value", "$promise", "$failure", "$plain"
_MARK = "$"
#: Of lists and objects within each other. Whoever reads them goes into each, and Python goes only so deep.
DEPTH_MOST = 200


class Encoder:
    """Of the calls of one decider. `uses`: the tasks whose values are wanted; `passes`: whether promises are passed on
    as they are."""

    def __init__(self, number_of: Callable[[Promise[Any]], int]) -> None:
        self._number_of = number_of
        self.uses: set[int] = set()
        self.passes = False

    def call(self, what: str, args: Any, kwargs: Mapping[str, Any]) -> str:
        """Both as JSON text, within the limit of what a task may carry."""
        plain = self.plain(f"the arguments of {what}", {"args": list(args), "kwargs": dict(kwargs)})
        text = payload.as_json(f"arguments of {what}", plain)
        return payload.limited(f"the arguments of {what}", text)

    def plain(self, what: str, value: Any) -> Any:
        """With promises and failures as they are written."""
        try:
            return self._plain(value, 0)
        except RecursionError:
            raise BadRequest(
                f"{what} contain themselves, or lists and objects within each other more than {DEPTH_MOST} deep"
            ) from None

    def _plain(self, value: Any, depth: int) -> Any:
        if depth > DEPTH_MOST:
            raise RecursionError
        match value:
            case Promise():
                number = self._number_of(value)
                self.uses.add(number)
                return {VALUE: number}
            case NoWait():
                self.passes = True
                return {PROMISE: self._number_of(value.promise)}
            case Failure():
                return {FAILURE: {"type": value.type, "message": value.message}}
            case dict():
                found = {key: self._plain(each, depth + 1) for key, each in value.items()}
                return {PLAIN: found} if _marked(found) else found
            case list() | tuple():
                return [self._plain(each, depth + 1) for each in value]
            case _:
                return value


def written(what: str, value: Any) -> str:
    """The value of a task, which must hold no promise."""

    def refuse(promise: Promise[Any]) -> int:
        raise BadRequest(
            f"the value of {what} holds {promise!r} inside of something else: return the promise itself, or that of a "
            "call that puts the values together"
        )

    plain = Encoder(refuse).plain(f"the parts of the value of {what}", value)
    return payload.limited(f"the value of {what}", payload.as_json(f"the value of {what}", plain))


def renumbered(text: str, number_of: Callable[[int], int]) -> str:
    """The same with the numbers that the tasks were given when the decision was accepted."""
    if _MARK not in text:
        return text
    return json.dumps(_renumber(json.loads(text), number_of), ensure_ascii=False, separators=(",", ":"))


def _renumber(value: Any, number_of: Callable[[int], int]) -> Any:
    match value:
        case dict() if _marked(value):
            (mark, inner), *_ = value.items()
            if mark in (VALUE, PROMISE):
                return {mark: number_of(inner)}
            return {mark: {key: _renumber(each, number_of) for key, each in inner.items()}}
        case dict():
            return {key: _renumber(each, number_of) for key, each in value.items()}
        case list():
            return [_renumber(each, number_of) for each in value]
        case _:
            return value


def read(value: Any, value_of: Callable[[int], Any], promise_of: Callable[[int], Any]) -> Any:
    """As the function gets it: with values and promises filled in."""
    match value:
        case dict() if _marked(value):
            (mark, inner), *_ = value.items()
            match mark:
                case "$value":
                    return value_of(inner)
                case "$promise":
                    return promise_of(inner)
                case "$failure":
                    return Failure(str(inner.get("type")), str(inner.get("message")))
                case _:
                    return {key: read(each, value_of, promise_of) for key, each in inner.items()}
        case dict():
            return {key: read(each, value_of, promise_of) for key, each in value.items()}
        case list():
            return [read(each, value_of, promise_of) for each in value]
        case _:
            return value


def filled(value: Any, values: Mapping[int, Any]) -> Any:
    """With values filled in, as JSON: as they are stored, but for the mark of a plain object that stands alone."""
    match value:
        case {"$value": int(number)} if _marked(value):
            found = values[number]
            return found[PLAIN] if isinstance(found, dict) and _marked(found) and PLAIN in found else found
        case {"$plain": dict(inner)} if _marked(value):
            # What is in there only looks like a mark; what is in that may be one.
            return {PLAIN: {key: filled(each, values) for key, each in inner.items()}}
        case dict():
            return {key: filled(each, values) for key, each in value.items()}
        case list():
            return [filled(each, values) for each in value]
        case _:
            return value


def plainly(value: Any) -> Any:
    """A value as it was returned: without the marks that it is written with."""
    return read(value, lambda number: number, lambda number: number)


def _marked(value: dict[Any, Any]) -> bool:
    return len(value) == 1 and isinstance(key := next(iter(value)), str) and key.startswith(_MARK)
