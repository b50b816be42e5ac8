"""What a decider makes: calls of actors and other deciders, whose results are promises. Pure.

Nothing is called when the decider calls it. What it asked for becomes tasks in the transaction that accepts its
decision; a decider that fails has asked for nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypedDict, TypeVar, Unpack, cast, overload

from app.checks import checked_span
from app.errors import BadRequest, TooLarge
from processes.arguments import Encoder
from processes.definition import Definition, Retry, definition_of, fail_names
from processes.promise import NoWait, Promise

R = TypeVar("R")

#: That one decision may ask for, and the bytes of their arguments.
CALLS_MOST = 20_000
BYTES_MOST = 64 * 1024 * 1024
#: How many of them wait for how many others.
WAITS_MOST = 200_000
#: Of a task, in Postgres.
NUMBER_MOST = 2**31
DELAY_MOST = timedelta(days=3650)


@dataclass(frozen=True)
class Planned:
    """A call that a decider asked for. Numbers are those of tasks if positive; -i is the planned call i, from 0."""

    actor: str
    arguments: str
    uses: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    policy: dict[str, Any] | None = None
    delay: timedelta | None = None
    not_before: datetime | None = None

    @property
    def waits_for(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((*self.uses, *self.after)))


class Options(TypedDict, total=False):
    """Of a call."""

    kwargs: Mapping[str, Any] | None
    after: Iterable[Promise[Any]]
    retry: Retry | None
    fail_types: Iterable[type[BaseException] | str] | None
    delay: str | float | timedelta | None
    at: datetime | None


@dataclass
class Flow:
    """Given to a decider as its first argument."""

    process_id: int = 0
    custom_id: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    planned: list[Planned] = field(default_factory=list)
    _bytes: int = 0
    _waits: int = 0

    # What a decider returns is its value, or the promise of it.
    @overload
    def call(self, function: Callable[..., Promise[R]], *args: Any, **options: Unpack[Options]) -> Promise[R]: ...

    @overload
    def call(self, function: Callable[..., R], *args: Any, **options: Unpack[Options]) -> Promise[R]: ...

    def call(
        self,
        function: Callable[..., Any],
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        after: Iterable[Promise[Any]] = (),
        retry: Retry | None = None,
        fail_types: Iterable[type[BaseException] | str] | None = None,
        delay: str | float | timedelta | None = None,
        at: datetime | None = None,
    ) -> Promise[Any]:
        """Asks for a call of an actor, or of another decider. Promises among the arguments are waited for; so is what
        `after` names, without its value.

        `retry` and `fail_types` rule over what the actor says. `delay`: handed out so long after everything that it
        waits for is there; `at`: not before that moment.
        """
        wanted = definition_of(function)
        named = _named(wanted.name, kwargs)
        self._check_arguments(wanted, args, named)
        encoder = Encoder(self._number_of)
        arguments = encoder.call(wanted.name, args, named)
        if encoder.passes and not wanted.decider:
            raise BadRequest(f"{wanted.name} is an actor, which needs the value: pass the promise without flow.no_wait")
        self._bytes += len(arguments)
        if len(self.planned) >= CALLS_MOST or self._bytes > BYTES_MOST:
            raise TooLarge(
                f"one decision asks for more than {CALLS_MOST} calls, or arguments of more than {BYTES_MOST} bytes: "
                "let it call deciders that ask for a part each"
            )
        waited_for = self._after(wanted.name, after)
        self._waits += len(encoder.uses) + len(waited_for)
        if self._waits > WAITS_MOST:
            raise TooLarge(
                f"the calls of one decision wait for more than {WAITS_MOST} promises in all: wait for one call that "
                "waits for the others"
            )
        self.planned.append(
            Planned(
                wanted.name,
                arguments,
                tuple(sorted(encoder.uses)),
                waited_for,
                _policy(wanted.name, retry, fail_types),
                None if delay is None else _span(wanted.name, delay),
                _moment(wanted.name, at),
            )
        )
        return Promise(self, 1 - len(self.planned))

    def no_wait(self, promise: Promise[R]) -> R:
        """The promise as an argument of a decider, which gets it as it is and does not wait for it."""
        self._number_of(promise)
        # To a type checker it is what the parameter wants.
        return cast(R, NoWait(promise))

    def promise(self, number: int) -> Promise[Any]:
        """Of a task of this process."""
        if type(number) is not int or number < 1:
            raise BadRequest(f"promise({number!r:.100}): tasks are numbered from 1")
        return Promise(self, number)

    def number_of_value(self, value: Any) -> int | None:
        """Of the task whose promise the decider has returned; None: a value."""
        promise = value.promise if isinstance(value, NoWait) else value
        return self._number_of(promise) if isinstance(promise, Promise) else None

    def _number_of(self, promise: Any) -> int:
        if not isinstance(promise, Promise):
            raise BadRequest(f"{promise!r:.100} is no promise: pass what flow.call has returned")
        if promise._flow is not self:
            raise BadRequest(
                f"{promise!r} belongs to another process, or to another run of this decider: "
                "pass values between processes, and promises only within the call that made them"
            )
        number: Any = promise._number
        if type(number) is not int or not -len(self.planned) < number < NUMBER_MOST:
            raise BadRequest(f"a promise of {number!r:.100}, which is the number of no task and of no call before this")
        return number

    def _after(self, name: str, after: Any) -> tuple[int, ...]:
        listed: list[Any] = list(after) if isinstance(after, Iterable) and not isinstance(after, Promise) else [after]
        if wrong := [each for each in listed if not isinstance(each, Promise)]:
            raise BadRequest(f"{name}: after={wrong[0]!r:.100} is no promise: list what flow.call has returned")
        return tuple(dict.fromkeys(self._number_of(each) for each in listed))

    @staticmethod
    def _check_arguments(wanted: Definition, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if any(not isinstance(name, str) for name in kwargs):
            raise BadRequest(f"{wanted.name}: kwargs={kwargs!r:.100}: the names of arguments are text")
        check_arguments(wanted, args, kwargs)


def check_arguments(wanted: Definition, args: Iterable[Any], kwargs: Mapping[str, Any]) -> None:
    """Whether the function could be called so."""
    try:
        wanted.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise BadRequest(f"{wanted.name}{_shown(wanted.signature)} cannot be called so: {error}") from None


def _shown(signature: inspect.Signature) -> str:
    return str(signature.replace(return_annotation=inspect.Signature.empty))


def _policy(name: str, retry: Any, fail_types: Any) -> dict[str, Any] | None:
    if retry is not None and not isinstance(retry, Retry):
        raise BadRequest(f"{name}: retry={retry!r:.100} must be a Retry, such as Retry(max_attempts=5)")
    found: dict[str, Any] = {} if retry is None else {"retry": retry.words()}
    if fail_types is not None:
        found["fail_types"] = list(fail_names(name, fail_types))
    return found or None


def _named(name: str, kwargs: Any) -> dict[Any, Any]:
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise BadRequest(f"{name}: kwargs={kwargs!r:.100} must be a dict")
    return dict(kwargs or {})


def _span(name: str, delay: Any) -> timedelta:
    span = checked_span(name, "delay", delay)
    if span > DELAY_MOST:
        raise BadRequest(f"{name}: delay={delay!r:.100} must be ten years at most")
    return span


def _moment(name: str, at: Any) -> datetime | None:
    if at is not None and (not isinstance(at, datetime) or at.tzinfo is None or not 1970 < at.year < 9000):
        raise BadRequest(
            f"{name}: at={at!r:.100} must be a datetime of our times with a time zone, as datetime(…, tzinfo=UTC)"
        )
    return at
