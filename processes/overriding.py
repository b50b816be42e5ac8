"""What an operator gives a task that is done again: other arguments, or the result for which it is then not called.
Pure.

Arguments are written as `processes.show` shows them: `{"$value": 7}` is the value of task 7. Of a result every part is
what it is.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.errors import BadRequest
from app.jobs import payload
from processes.arguments import DEPTH_MOST, FAILURE, PLAIN, PROMISE, VALUE, written
from processes.definition import declared
from processes.flow import check_arguments


class Unchanged:
    """Nothing was given; None is a result like any other."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()


@dataclass(frozen=True)
class Instead:
    """None: as it was."""

    args: Sequence[Any] | None = None
    kwargs: Mapping[str, Any] | None = None
    #: As JSON text.
    result: str | None = None

    @property
    def arguments(self) -> bool:
        return self.args is not None or self.kwargs is not None


@dataclass(frozen=True)
class Called:
    """With what a task is called. `uses`: whose values are to be filled in; `names`: whose promises are passed on."""

    text: str
    uses: frozenset[int]
    names: frozenset[int]


def instead(args: Any = None, kwargs: Any = None, result: Any = UNCHANGED) -> Instead:
    if args is not None and not isinstance(args, list | tuple):
        raise BadRequest(f"args={args!r:.100} must be a list of arguments, such as [17, {{}}]")
    if kwargs is not None and (not isinstance(kwargs, Mapping) or any(not isinstance(each, str) for each in kwargs)):
        raise BadRequest(f"kwargs={kwargs!r:.100} must be a dict with the names of arguments")
    if isinstance(result, Unchanged):
        return Instead(args, kwargs)
    if args is not None or kwargs is not None:
        raise BadRequest("a task whose result is given is not called: give it no arguments")
    return Instead(result=written("the task", result))


def called(actor: str, before: str, given: Instead) -> Called:
    """What was given, and the rest as it was; `before`: what it was called with, as JSON text."""
    found = json.loads(before)
    if given.args is not None:
        found["args"] = list(given.args)
    if given.kwargs is not None:
        found["kwargs"] = dict(given.kwargs)
    whose = f"the arguments of {actor}"
    text = payload.limited(whose, payload.as_json(whose, {part: found[part] for part in ("args", "kwargs")}))
    marks = list(_marks(whose, [found["args"], found["kwargs"]]))
    if (known := declared.get(actor)) is not None:
        check_arguments(known, found["args"], found["kwargs"])
    uses, names = ({number for mark, number in marks if mark == kind} for kind in (VALUE, PROMISE))
    return Called(text, frozenset(uses), frozenset(names))


def check(actor: str, wanted: Called, *, waits_for: Collection[int], there: Collection[int], decider: bool) -> None:
    """A task waits for what it waited for before, and for nothing else."""
    if strange := sorted(wanted.uses - set(waits_for)):
        known = ", ".join(map(str, sorted(waits_for)[:10])) or "none"
        raise BadRequest(
            f"{actor} does not wait for task {strange[0]}, whose value cannot be filled in: it waits for {known}"
        )
    if wanted.names and not decider:
        raise BadRequest(f"{actor} is an actor, which needs values: write {json.dumps({VALUE: min(wanted.names)})}")
    if gone := sorted(wanted.names - set(there)):
        raise BadRequest(f"there is no task {gone[0]}, whose promise {actor} is to be given")


def _marks(whose: str, value: Any, depth: int = 0) -> Iterator[tuple[str, int]]:
    if depth > DEPTH_MOST:
        raise BadRequest(f"{whose} have lists and objects within each other more than {DEPTH_MOST} deep")
    match value:
        case dict():
            yield from _of_object(whose, value, depth)
        case list() | tuple():
            for each in value:
                yield from _marks(whose, each, depth + 1)
        case _:
            return


def _of_object(whose: str, value: Mapping[str, Any], depth: int) -> Iterator[tuple[str, int]]:
    inner = value.values()
    key = next(iter(value), "")
    if len(value) == 1 and key.startswith("$"):
        match key, value[key]:
            case (("$value" | "$promise"), int(number)) if type(number) is int and number > 0:
                yield key, number
                return
            case "$failure", {"type": str(), "message": str()}:
                return
            case "$plain", dict(plain):
                inner = plain.values()
            case _:
                known = f"{VALUE}, {PROMISE} and {FAILURE}"
                example = json.dumps({PLAIN: {key: 1}})
                raise BadRequest(f"{whose}: {key!r:.50} is none of {known}; an object of your own is written {example}")
    for each in inner:
        yield from _marks(whose, each, depth + 1)


def read_json(text: str) -> Any:
    """`ValueError` for whatever cannot be read."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")
