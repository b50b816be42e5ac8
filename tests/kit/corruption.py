"""Processes with something wrong in their rows: each corruption as the SQL that plants it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from processes import start
from processes.answers import Handed
from recovery.findings import Case
from tests.kit import process_rows as r
from tests.kit import process_world as w

NUMBER = 5
VALUE = w.value_of(NUMBER)


class Alone(r.Calls):
    """A worker that serves only what it is asked for."""

    def consumes(self, queue: str) -> bool:
        return False


@dataclass(frozen=True)
class Journey:
    """1 follows 5; 2 has finished; 3 is queued, and 4 in work; 5 waits for both of them."""

    id: int
    handed: Handed


def journey() -> Journey:
    found = r.begin(start(w.journey, NUMBER))
    r.serve("journey", calls=Alone())
    r.well(r.handed_out("stride"), NUMBER + 1)
    return Journey(found, r.handed_out("stride"))


def broken_journey() -> Journey:
    """4 is broken."""
    found = journey()
    r.badly(found.handed, final=True)
    return found


def finish(found: Journey, *, answered: bool = True) -> None:
    """What is left of it is done."""
    if answered:
        r.well(found.handed, NUMBER + 11)
    r.due_again()
    r.serve("midway", "stride", "meet")


@dataclass(frozen=True)
class Planted:
    case: Case
    #: With `{id}` of the process.
    statement: str
    tasks: tuple[int, ...] = ()
    broken: bool = False

    def into(self, process_id: int) -> None:
        for each in self.statement.format(id=process_id).split(";"):
            r.execute(each)


def _of(table: str, number: int, change: str) -> str:
    return f"UPDATE tidemill.{table} SET {change} WHERE process_id = {{id}} AND number = {number}"  # noqa: S608


def _no_edge(source: int, target: int) -> str:
    return f"DELETE FROM tidemill.edge WHERE process_id = {{id}} AND source = {source} AND target = {target}"  # noqa: S608


_OPEN = (
    "INSERT INTO tidemill.decision (process_id, number, queue) VALUES ({id}, 5, 'actor.meet') "
    "ON CONFLICT (process_id, number) DO UPDATE SET state = 'QUEUED'"
)
_NO_DECISION = "DELETE FROM tidemill.decision WHERE process_id = {id} AND number = 3"
_PROCESS = "UPDATE tidemill.process SET {} WHERE id = {{id}}"
_GRAPH = "UPDATE tidemill.graph SET {} WHERE process_id = {{id}}"
_UNFINISHED = "state = 'READY', ended_at = NULL"

#: By name: in a journey.
REPAIRABLE: dict[str, Planted] = {
    "decided, not applied": Planted(Case.DECIDED_NOT_APPLIED, _of("task", 2, _UNFINISHED), (2,)),
    "decided, and nothing of it": Planted(
        Case.DECIDED_NOT_APPLIED,
        f"{_of('task', 2, _UNFINISHED)}; {_of('task', 3, 'state = $PENDING$, pending = 1')}; {_NO_DECISION};"
        f"{_GRAPH.format('unfinished = 5')}".replace("$", "'"),
        (2,),
    ),
    "no decision": Planted(Case.NOT_QUEUED, _NO_DECISION, (3,)),
    "a decision without a value": Planted(Case.NOT_QUEUED, _of("decision", 3, "state = 'FINISH'"), (3,)),
    "another queue": Planted(Case.NOT_CLAIMABLE, _of("decision", 3, "queue = 'actor.nobody'"), (3,)),
    "no time": Planted(Case.NOT_CLAIMABLE, _of("decision", 3, "due_at = NULL"), (3,)),
    "never": Planted(Case.NOT_CLAIMABLE, _of("decision", 3, "not_before = 'infinity'"), (3,)),
    "in work without end": Planted(Case.UNWATCHED_WORK, _of("decision", 4, "recovery_time = NULL"), (4,)),
    "in work for ever": Planted(Case.UNWATCHED_WORK, _of("decision", 4, "recovery_time = 'infinity'"), (4,)),
    "not advanced": Planted(
        Case.NOT_ADVANCED, f"{_of('task', 3, 'state = $PENDING$, pending = 1')}; {_NO_DECISION}".replace("$", "'"), (3,)
    ),
    "advanced by half": Planted(Case.NOT_ADVANCED, _of("task", 3, "state = 'PENDING', pending = 1"), (3,)),
    "too early": Planted(
        Case.TOO_EARLY, f"{_of('task', 5, 'state = $READY$, pending = 0')}; {_OPEN}".replace("$", "'"), (5,)
    ),
    "pending too low": Planted(Case.TOO_EARLY, _of("task", 5, "pending = 1"), (5,)),
    "edge that was used": Planted(Case.EDGE_LOST, _no_edge(2, 3), (3,)),
    "edge that is waited for": Planted(Case.EDGE_LOST, _no_edge(4, 5), (5,)),
    "edge of the value": Planted(Case.EDGE_LOST, _no_edge(5, 1), (1,)),
    "value only on the edge": Planted(Case.EDGE_LOST, _of("task", 1, "value_of = NULL"), (1,)),
    "graph": Planted(Case.GRAPH_LOST, "DELETE FROM tidemill.graph WHERE process_id = {id}"),
    "counts": Planted(Case.WRONG_COUNTS, _GRAPH.format("unfinished = 3")),
    "counts of broken ones": Planted(Case.WRONG_COUNTS, _GRAPH.format("broken = 1")),
    "numbers": Planted(Case.WRONG_COUNTS, _GRAPH.format("tasks = 4")),
    "open though finished": Planted(Case.OPEN_DECISION, _of("decision", 2, "state = 'QUEUED'"), (2,)),
    "open though pending": Planted(Case.OPEN_DECISION, _OPEN, (5,)),
    "listed as broken": Planted(
        Case.TOLD_IN_VAIN,
        "INSERT INTO tidemill.broken_task (process_id, number, actor, type, message) "
        "VALUES ({id}, 2, 'stride', 'E', 'm'), ({id}, 3, 'midway', 'E', 'm')",
        (2, 3),
    ),
    "finished too early": Planted(Case.ENDED_TOO_EARLY, _PROCESS.format("state = 'FINISHED', ended_at = now()")),
    "a task aborted": Planted(Case.ENDED_TOO_EARLY, _of("task", 3, "state = 'ABORTED'"), (3,)),
    "broken for nothing": Planted(Case.BROKEN_FOR_NOTHING, _PROCESS.format("state = 'BROKEN'")),
    "unwatched": Planted(Case.WRONG_CLOCK, _GRAPH.format("recovery_time = NULL")),
    "without time": Planted(Case.WRONG_CLOCK, _PROCESS.format("deadline_at = now() + interval '1 h'")),
    "before its time": Planted(
        Case.WRONG_CLOCK, _PROCESS.format("recovery_time = now() - interval '1 s', deadline_at = NULL")
    ),
}
#: The same, and nobody can put it right.
LOST: dict[str, Planted] = {
    "task": Planted(Case.TASK_LOST, "DELETE FROM tidemill.task WHERE process_id = {id} AND number = 3", (3,)),
    "first task": Planted(Case.TASK_LOST, "DELETE FROM tidemill.task WHERE process_id = {id} AND number = 1", (1,)),
    "all tasks": Planted(Case.TASK_LOST, "DELETE FROM tidemill.task WHERE process_id = {id}", (1,)),
    "value": Planted(Case.VALUE_LOST, _of("task", 2, "result = NULL"), (2,)),
    "edge": Planted(Case.WAITS_FOR_NOTHING, f"{_no_edge(4, 5)}; {_of('task', 5, 'uses = NULL')}", (5,)),
}


def content(session: Session) -> dict[str, list[Any]]:
    """All that recovery could change."""
    session.rollback()
    tables = ("process", "graph", "task", "edge", "decision", "broken_task", "answer", "repair", "counter")
    found = {
        table: [row[0] for row in session.execute(sa.text(f"SELECT t::text FROM tidemill.{table} t ORDER BY 1"))]  # noqa: S608
        for table in tables
    }
    session.rollback()
    return found
