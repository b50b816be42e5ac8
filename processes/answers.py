"""What an actor answers, and what is made of it (P5, P9). Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from traceback import format_exception, format_exception_only
from typing import Any

from app.errors import BadRequest
from processes.definition import Retry
from processes.flow import Planned
from processes.states import DecisionState, ProcessState

#: The types of the errors that recovery makes.
WORK_TIMEOUT, TASK_TIMEOUT = "WorkTimeout", "TaskTimeout"
MESSAGE_LIMIT, TRACEBACK_LIMIT = 2_000, 20_000


@dataclass(frozen=True)
class Handed:
    """Which hand-out of which task is answered."""

    process_id: int
    number: int
    epoch: int
    pass_key: uuid.UUID | None
    worker: str | None = None
    #: When the task was made; None where whoever answers was not told.
    made_at: datetime | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.process_id, self.number


@dataclass(frozen=True)
class Value:
    """A good end: what the decider asks for, and its value as JSON text, or whose value it has."""

    text: str | None
    planned: Sequence[Planned] = ()
    value_of: int | None = None


@dataclass(frozen=True)
class Failed:
    """`types`: the names of the error's class and of those that it is made of. `final`: it would fail again."""

    types: tuple[str, ...]
    message: str
    traceback: str | None = None
    final: bool = False

    @property
    def told(self) -> str:
        return f"{self.types[0]}: {self.message}" if self.message else self.types[0]


@dataclass(frozen=True)
class Answer:
    handed: Handed
    outcome: Value | Failed
    #: Made because a time was over. Nobody has to know of one that came too late.
    by_time: bool = False
    #: Given by an operator, of a task that nobody was called for.
    by_hand: bool = False
    #: By a program that may say any pass.
    from_outside: bool = False


@dataclass(frozen=True)
class Standing:
    """What an answer is measured by: how the task stands, under lock."""

    process: ProcessState
    decision: DecisionState
    epoch: int
    pass_key: uuid.UUID | None
    failures: int
    broken: bool
    accept_first: bool
    retry: Mapping[str, Any]
    fail_types: Sequence[str]
    #: In this epoch. `troubled`: more than once, perhaps: it was taken back, or has failed; the passes are not kept.
    handed_out: bool = True
    troubled: bool = True
    made_at: datetime | None = None


@dataclass(frozen=True)
class Take:
    """It is the result, also as an accepted failure."""


@dataclass(frozen=True)
class Again:
    """An attempt that failed; another one is made."""

    wait: timedelta


@dataclass(frozen=True)
class Break:
    """The task is broken."""


@dataclass(frozen=True)
class Refuse:
    why: str


def judge(answer: Answer, standing: Standing) -> Take | Again | Break | Refuse:
    """P5: the first good result counts, of whichever hand-out, or only that of the present one; a failure counts only
    if the task was not handed out again since."""
    handed, outcome = answer.handed, answer.outcome
    if standing.process in (ProcessState.FINISHED, ProcessState.ABORTED):
        return Refuse(f"the process is {standing.process}")
    if handed.made_at is not None and handed.made_at != standing.made_at:
        # An older state of the database was restored, and the numbers of what was lost were given out again.
        return Refuse("it is the answer to another task, which this database does not know")
    if handed.epoch != standing.epoch:
        return Refuse("an operator has restarted the task since it was handed out")
    if not (standing.handed_out or answer.by_time or answer.by_hand):
        return Refuse("the task was not handed out")
    if standing.decision is DecisionState.FINISH and not standing.broken:
        return Refuse("the task has finished already")
    # What waits has no pass, and is answered for by nobody but recovery.
    mine = standing.decision is not DecisionState.FINISH and handed.pass_key == standing.pass_key
    if answer.from_outside and standing.decision is DecisionState.WORK and not (mine or standing.troubled):
        return Refuse("the task was handed out once, and not with this pass")
    if isinstance(outcome, Value):
        if mine or standing.accept_first:
            return Take()
        return Refuse("the task was broken meanwhile" if standing.broken else "the task was handed out again since")
    if not mine:
        return Refuse("a late failure: the task was taken back or handed out again since")
    if not set(outcome.types).isdisjoint(standing.fail_types):
        return Take()
    wait = None if outcome.final else Retry.of(standing.retry).after(standing.failures + 1)
    return Break() if wait is None else Again(wait)


def failure(error: BaseException) -> Failed:
    """Of what a function raised. What was asked for in a way that cannot be will not be possible the next time."""
    types = tuple(each.__name__ for each in type(error).__mro__ if each not in (BaseException, object))
    message = "".join(format_exception_only(error)).strip()
    return Failed(
        types or (type(error).__name__,),
        message.partition(": ")[2][:MESSAGE_LIMIT],
        "".join(format_exception(error))[-TRACEBACK_LIMIT:],
        final=isinstance(error, BadRequest),
    )
