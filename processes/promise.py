"""What stands for a value that is not there yet, and for one that will never be. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class Promise(Generic[R]):
    """The value that a task will have. A decider gets one from `flow.call`, and passes it to other calls or returns it.

    It is no value: what wants to look at the value is a call of its own, which is made when the value is there.
    """

    __slots__ = ("_flow", "_number")

    def __init__(self, flow: object, number: int) -> None:
        #: Whose it is; the number of its task if positive, else how many calls before it that flow had made, negated.
        self._flow, self._number = flow, number

    def __repr__(self) -> str:
        return f"<promise of task {self._number}>" if self._number > 0 else f"<promise of call {1 - self._number}>"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Promise):
            return self is other
        raise TypeError(f"{self!r} is no value yet: pass it to flow.call, and compare the value there")

    __hash__ = object.__hash__

    def __format__(self, _spec: str) -> str:
        raise TypeError(f"{self!r} is no value yet: pass it to flow.call, and write the text there")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{self!r} has no {name!r}: it is no value yet; pass it to flow.call, and look at it there"
        )

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} is no value yet: pass it to flow.call, and look at the value there")

    def __iter__(self) -> Any:
        raise TypeError(f"{self!r} is no value yet: pass it to flow.call, and go through the values there")


class NoWait(Generic[R]):
    """A promise that is passed on as it is: `flow.no_wait(promise)`."""

    __slots__ = ("promise",)

    def __init__(self, promise: Promise[R]) -> None:
        self.promise = promise


@dataclass(frozen=True)
class Failure:
    """In the place of a value: the task failed in a way that was to be accepted (`fail_types`)."""

    type: str
    message: str
