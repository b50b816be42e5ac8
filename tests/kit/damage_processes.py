"""Of processes: what violates each invariant, planted into processes that stand at different points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from processes import operate, start
from tests.kit import corruption as c
from tests.kit import process_rows as r
from tests.kit import process_world as w


def journey() -> int:
    return c.journey().id


def broken() -> int:
    return c.broken_journey().id


def aborted() -> int:
    found = c.journey().id
    operate.abort(found)
    return found


def finished() -> int:
    found = c.journey()
    c.finish(found)
    return found.id


def begun() -> int:
    return r.begin(start(w.journey, c.NUMBER))


def registered() -> int:
    return start(w.journey, c.NUMBER)


@dataclass(frozen=True)
class Damaged:
    invariant: str
    #: With `{id}`.
    plant: str
    #: The task.
    number: int | None = None
    make: Callable[[], int] = journey

    def into(self, process_id: int) -> None:
        for each in self.plant.format(id=process_id).split(";"):
            r.execute(each)

    def subject(self, process_id: int) -> str:
        return str(process_id) if self.number is None else f"{process_id}/{self.number}"


def _process(change: str) -> str:
    return f"UPDATE tidemill.process SET {change} WHERE id = {{id}}"  # noqa: S608


def _graph(change: str) -> str:
    return f"UPDATE tidemill.graph SET {change} WHERE process_id = {{id}}"  # noqa: S608


def _of(table: str, number: int, change: str) -> str:
    return f"UPDATE tidemill.{table} SET {change} WHERE process_id = {{id}} AND number = {number}"  # noqa: S608


def _gone(table: str, column: str = "process_id") -> str:
    return f"DELETE FROM tidemill.{table} WHERE {column} = {{id}}"  # noqa: S608


_EDGES = "what a task uses, and whom it follows, is among its edges"
_OPEN = "an open decision is that of a task that is ready"
_CLAIMABLE = "a decision that waits can be claimed"
_COUNTS = "a task counts what it waits for"
_IN_WORK = "a decision that is in work has a pass and an end"
_LOOKED_AT = "a process that goes on is looked at"
#: Of the corruptions that recovery heals: which invariant each of them violates.
_HEALED = {
    "decided, not applied": ("what was decided is applied", 2),
    "decided, and nothing of it": ("what was decided is applied", 2),
    "no decision": ("a task that is ready is queued", 3),
    "a decision without a value": ("a task that is ready is queued", 3),
    "another queue": (_CLAIMABLE, 3),
    "no time": (_CLAIMABLE, 3),
    "never": (_CLAIMABLE, 3),
    "in work without end": (_IN_WORK, 4),
    "in work for ever": (_IN_WORK, 4),
    "not advanced": (_COUNTS, 3),
    "advanced by half": (_COUNTS, 3),
    "too early": (_COUNTS, 5),
    "pending too low": (_COUNTS, 5),
    "edge that was used": (_EDGES, 3),
    "edge that is waited for": (_EDGES, 5),
    "edge of the value": (_EDGES, 1),
    "value only on the edge": (_EDGES, 1),
    "graph": ("a process that goes on has a graph", None),
    "counts": ("a graph counts its tasks", None),
    "counts of broken ones": ("a graph counts its broken tasks", None),
    "numbers": ("a graph knows the highest number of a task", None),
    "open though finished": (_OPEN, 2),
    "open though pending": (_OPEN, 5),
    "listed as broken": ("what is told of is a broken task", 2),
    "finished too early": ("a process that has finished has no task left", None),
    "a task aborted": ("only an aborted process has aborted tasks", 3),
    "broken for nothing": ("a broken process has a broken task", None),
    "unwatched": (_LOOKED_AT, None),
    "without time": (_LOOKED_AT, None),
    "before its time": ("a process is looked at when its time is over", None),
}
_LOST = {
    "task": ("what a task or a decision names is there", 3),
    "first task": ("what a task or a decision names is there", 1),
    "all tasks": ("a graph that has grown has tasks", None),
    "value": ("a task that has finished has its value", 2),
    "edge": ("a task waits for what some row says", 5),
}
_BY_NAME = c.REPAIRABLE | c.LOST

DAMAGED = (
    *(Damaged(name, _BY_NAME[planted].statement, number) for planted, (name, number) in (_HEALED | _LOST).items()),
    Damaged("the time at which a process is looked at comes", _process("recovery_time = 'infinity'")),
    Damaged("the time at which a graph is looked at comes", _graph("recovery_time = 'infinity'")),
    Damaged("a process that goes on says when it began", _process("begun_at = NULL")),
    Damaged("a process that has finished has a graph", _gone("graph"), make=finished),
    Damaged("a graph that is looked at is that of a process", _gone("process", "id")),
    Damaged("an open decision is that of a process", f"{_gone('process', 'id')}; {_gone('graph')}", 3),
    Damaged("what is left of a process has a process", f"{_gone('process', 'id')}; {_gone('graph')}", make=finished),
    Damaged("a graph that nothing has come of has its first task", f"{_gone('task')}; {_gone('decision')}", make=begun),
    Damaged("the graph of a process that has finished counts nothing", _graph("unfinished = 1"), make=finished),
    Damaged("a process has finished when its tasks have", _process("state = 'ACTIVE', ended_at = NULL"), make=finished),
    Damaged("a process with a broken task is broken", _process("state = 'ACTIVE'"), make=broken),
    Damaged("a process has an end exactly when it is over", _process("ended_at = now()")),
    Damaged("a process has an end exactly when it is over", _process("ended_at = NULL"), make=finished),
    Damaged(
        "a process that is over is looked at by nobody",
        _graph("recovery_time = now() + interval '1 h'"),
        make=finished,
    ),
    Damaged("what is overdue is looked at by a sweep", _graph("recovery_time = now() - interval '1 d'")),
    Damaged("no process is broken", "SELECT 1", make=broken),
    Damaged(
        "a task waits exactly while there is something to wait for", _of("task", 5, "state = 'READY', pending = 2"), 5
    ),
    Damaged("a task follows one that has not finished", _of("task", 1, "value_of = 2"), 1),
    Damaged("an aborted process has only tasks that are over", _of("task", 3, "state = 'READY'"), 3, make=aborted),
    Damaged("a process that is over has no open decision", _of("decision", 3, "state = 'QUEUED'"), 3, make=aborted),
    Damaged("a broken task is told of", _gone("broken_task"), 4, make=broken),
    Damaged(
        "an answer that does not come is missed by a sweep",
        _of("decision", 4, "recovery_time = now() - interval '1 d'"),
        4,
    ),
    Damaged("a process that is registered is looked at", _process("recovery_time = NULL"), make=registered),
)


def in_turn() -> list[Damaged]:
    """Whoever makes a process may work off the queues of those that are there: these come last."""
    turns = {finished: 0, begun: 2, registered: 3}
    return sorted(DAMAGED, key=lambda each: turns.get(each.make, 1))


NOT_QUEUED = next(each for each in DAMAGED if each.invariant == "a task that is ready is queued")
