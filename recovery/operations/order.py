"""What an operation is to do, and with what."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from app.errors import BadRequest
from app.jobs import search as jobs
from processes import filters as processes
from stages import parked as visits


class Kind(enum.StrEnum):
    #: Looks at processes, and changes nothing.
    CHECK = "check"
    #: Looks at processes, and repairs what can be repaired.
    RECOVER = "recover"
    RESTART = "restart"
    #: From each broken task; or from the tasks of an actor, or a task by its number.
    RESTART_TASK = "restart-task"
    ABORT = "abort"
    #: Visits what is parked again.
    REDRIVE = "redrive"
    RERUN_REACTIVE = "rerun-reactive"
    RERUN_JOBS = "rerun-jobs"


@dataclass(frozen=True)
class Named:
    """Reactive tasks; `*` stands for any text and `?` for any character."""

    patterns: tuple[str, ...]


@dataclass(frozen=True)
class Ids:
    """Of processes; of entries of the job log."""

    ids: tuple[int, ...]


Of = processes.Filters | visits.Selection | Named | jobs.Filters | Ids
OF_PROCESSES = (Kind.CHECK, Kind.RECOVER, Kind.RESTART, Kind.RESTART_TASK, Kind.ABORT)
_TAKES: Mapping[Kind, tuple[type, ...]] = {
    **dict.fromkeys(OF_PROCESSES, (processes.Filters, Ids)),
    Kind.REDRIVE: (visits.Selection,),
    Kind.RERUN_REACTIVE: (Named,),
    Kind.RERUN_JOBS: (jobs.Filters, Ids),
}
#: That hand out tasks again, which may break again.
RESTARTING = (Kind.RESTART, Kind.RESTART_TASK)
#: Of the ids that were given, so many are kept with the operation.
IDS_TOLD = 100
IDS_MOST = 100_000


@dataclass(frozen=True)
class Order:
    kind: Kind
    of: Of
    #: Of `RESTART_TASK`, instead of the broken ones: this task, or those of this actor.
    task: int | None = None
    actor: str | None = None
    #: Of restarts: also what says that it is not repeatable is called again.
    repeat: bool = False
    #: Of `RERUN_REACTIVE`: what the run was checked with counts as seen.
    record: bool = False
    #: No more than so many, the first in their order.
    limit: int | None = None

    def __post_init__(self) -> None:
        takes = _TAKES[self.kind]
        if not isinstance(self.of, takes):
            names = " or ".join(f"{each.__module__}.{each.__name__}" for each in takes)
            raise BadRequest(f"{self.kind} is of {names}, not of {self.of!r:.100}")
        if self.kind is not Kind.RESTART_TASK and (self.task is not None or self.actor is not None):
            raise BadRequest(f"{self.kind} begins from no task: only {Kind.RESTART_TASK} has task= and actor=")
        if self.task is not None and self.actor is not None:
            raise BadRequest("from a task by its number, or from those of an actor: not both")
        if self.task is not None and (type(self.task) is not int or not 0 < self.task < 2**31):
            raise BadRequest(f"task={self.task!r:.100} is not the number of a task, which is a whole number from 1")
        if self.repeat and self.kind not in RESTARTING:
            raise BadRequest(f"{self.kind} calls nothing again: only {' and '.join(RESTARTING)} have repeat=")
        if self.record and self.kind is not Kind.RERUN_REACTIVE:
            raise BadRequest(f"{self.kind} remembers no run: only {Kind.RERUN_REACTIVE} has record=")
        if self.limit is not None and (type(self.limit) is not int or not 0 < self.limit < 2**63):
            raise BadRequest(f"limit={self.limit!r:.100} must be a whole number from 1")
        if isinstance(self.of, Ids):
            _check_ids(self.of.ids)

    @property
    def from_broken(self) -> bool:
        return self.kind is Kind.RESTART_TASK and self.task is None and self.actor is None

    def selection(self) -> dict[str, Any]:
        """As it is kept, to be read by people."""
        told = {"limit": self.limit} if self.limit is not None else {}
        match self.of:
            case Named(patterns):
                return {"tasks": list(patterns)} | told
            case Ids(ids):
                return {"ids": list(ids[:IDS_TOLD]), "count": len(ids)} | told
            case _:
                given = {each.name: _plain(getattr(self.of, each.name)) for each in fields(self.of)}
                return {word: value for word, value in given.items() if value not in (None, [], {}, "")} | told

    def parameters(self) -> dict[str, Any]:
        given = {"task": self.task, "actor": self.actor, "record": self.record or None}
        given["repeat"] = self.repeat or None
        found = {word: value for word, value in given.items() if value is not None}
        return found | ({"broken": True} if self.from_broken else {})


def _check_ids(ids: tuple[int, ...]) -> None:
    if not ids:
        raise BadRequest("no id is given")
    if len(ids) > IDS_MOST:
        raise BadRequest(f"{len(ids)} ids are more than {IDS_MOST}: say by filters which are meant")
    wrong = [each for each in ids if type(each) is not int or not 0 < each < 2**63]
    if wrong:
        raise BadRequest(f"{wrong[0]!r:.100} is not an id, which is a whole number from 1")


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case tuple() | list():
            return [_plain(each) for each in value]
        case Mapping():
            return {str(word): _plain(each) for word, each in value.items()}
        case None | bool() | int() | float():
            return value
        case _:
            return str(value)
