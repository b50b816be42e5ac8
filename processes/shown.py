"""What is told of one process, as it stands at one moment. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from processes.arguments import plainly
from processes.states import DecisionState, ProcessState, TaskState


@dataclass(frozen=True)
class AnswerShown:
    """An attempt that failed, or an answer that was refused, and why."""

    at: datetime
    worker: str | None
    refused: str | None
    error: str | None
    traceback: str | None = None


@dataclass(frozen=True)
class BrokenShown:
    at: datetime
    type: str
    message: str
    traceback: str | None = None
    #: The same of failures of an actor that differ in ids, numbers and quoted text only.
    fingerprint: str = ""


@dataclass(frozen=True)
class TaskShown:
    number: int
    actor: str
    state: TaskState
    #: `{"args": […], "kwargs": {…}}` as JSON text, with the marks of `processes.arguments`.
    arguments: str
    created_at: datetime
    #: Who asked for it; None: the process.
    created_by: int | None = None
    #: What it waits for, or has waited for.
    sources: tuple[int, ...] = ()
    #: Whose value is, or will be, that of this task; None: its own.
    value_of: int | None = None
    #: Of one that finished with a value of its own: JSON text.
    result: str | None = None
    #: It failed in a way that is accepted: the value is a `Failure`.
    failed: bool = False
    ready_at: datetime | None = None
    ended_at: datetime | None = None
    #: None: it has not been ready yet.
    decision: DecisionState | None = None
    #: How often it was handed out; how often it failed, and how often no answer came in time.
    attempts: int = 0
    failures: int = 0
    restarts: int = 0
    #: How often an operator has restarted it.
    epoch: int = 0
    #: Not handed out before.
    due_at: datetime | None = None
    #: When its `task_timeout` is over.
    deadline_at: datetime | None = None
    #: The last hand-out: to whom, when, and until when it is to be answered.
    worker: str | None = None
    claimed_at: datetime | None = None
    until: datetime | None = None
    #: When its decision was accepted, which is before its end if its value is that of another task.
    decided_at: datetime | None = None
    #: What went wrong the last time.
    error: str | None = None
    broken: BrokenShown | None = None
    #: The latest ones, the oldest of them first; and how many there are.
    answers: tuple[AnswerShown, ...] = ()
    answered: int = 0

    @property
    def value(self) -> Any:
        """What the task returned; None as long as there is nothing, and where the value is that of another task."""
        return read_value(self.result)

    @property
    def args(self) -> list[Any]:
        """As they are written, `{"$value": 7}` for the value of task 7."""
        return list(_called(self.arguments).get("args", ()))

    @property
    def kwargs(self) -> dict[str, Any]:
        return dict(_called(self.arguments).get("kwargs", {}))


@dataclass(frozen=True)
class Shown:
    """A process with its tasks. `at`: by the clock of the database, when this was so."""

    id: int
    name: str
    state: ProcessState
    error: str | None
    priority: int
    custom_id: str | None
    idempotency_key: str | None
    attributes: Mapping[str, Any]
    #: As `TaskShown.arguments`.
    arguments: str
    #: JSON text.
    result: str | None
    registered_at: datetime
    begun_at: datetime | None
    ended_at: datetime | None
    deadline_at: datetime | None
    at: datetime
    #: Which process it was a copy of when it was made, and the copies that were made of it, the first hundred.
    copied_from: int | None = None
    copies: tuple[int, ...] = ()
    #: By their numbers.
    tasks: tuple[TaskShown, ...] = ()

    @property
    def value(self) -> Any:
        return read_value(self.result)


def read_value(text: str | None) -> Any:
    return None if text is None else plainly(json.loads(text))


def _called(text: str) -> dict[str, Any]:
    found = json.loads(text)
    return found if isinstance(found, dict) else {}
