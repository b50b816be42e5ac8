"""The graphs of processes, loaded as a whole, mended, and written where they differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from app.arrays import Array
from processes.graph import Arrow, Node
from processes.model import DECISION, EDGE, PROCESS, TASK, Key
from processes.states import DecisionState, TaskState
from recovery import writing
from recovery.diagnose import ProcessFacts, TaskFacts
from recovery.findings import Case
from recovery.mending import mended


@dataclass
class Mended:
    #: What was queued, by its actor.
    queued: dict[Key, str] = field(default_factory=dict)
    #: Processes of which every task has finished now.
    done: set[int] = field(default_factory=set)


def mend(connection: Connection, processes: Mapping[int, ProcessFacts], held: Mapping[int, set[int]]) -> Mended:
    """`held`: by process, tasks of which nobody knows what they wait for."""
    writing.edges(connection, (row for each in processes.values() for row in _lost_edges(each)))
    found, ready, ended = Mended(), list[tuple[Any, ...]](), list[tuple[int, int, str, bool]]()
    changed = list[tuple[Any, ...]]()
    arrows = _arrows(connection, processes)
    for process_id, rows in _tasks(connection, processes).items():
        of = processes[process_id]
        after = mended(_nodes(of, rows), arrows[process_id], _decided(of), held.get(process_id, set()))
        for row in rows:
            number, node = row.number, after[row.number]
            if (TaskState(row.state), row.pending, row.value_of) != (node.state, node.pending, node.value_of):
                changed.append((process_id, number, node.state.value, node.pending, node.value_of))
            open_ = row.decision not in (None, DecisionState.FINISH)
            if open_ and node.state is not TaskState.READY:
                why = f"ended: its task is {node.state}"
                ended.append((process_id, number, why, node.state is TaskState.PENDING))
            elif node.state is TaskState.READY and not open_ and number not in held.get(process_id, ()):
                delay = row.delay if row.ready_at is None else None
                ready.append((process_id, number, row.actor, -row.priority, row.not_before, delay))
                found.queued[process_id, number] = row.actor
        if all(node.state is TaskState.FINISHED for node in after.values()):
            found.done.add(process_id)
    writing.tasks(connection, changed)
    writing.end(connection, ended)
    writing.queue(connection, ready)
    return found


def _lost_edges(process: ProcessFacts) -> list[tuple[int, int, int, bool]]:
    """That the tasks themselves name."""
    found = []
    for task in process.tasks:
        found += [(process.id, source, task.number, False) for source in task.without_edge]
        if task.value_of is not None and task.state is TaskState.FOLLOWS and task.value_edge != task.value_of:
            found.append((process.id, task.value_of, task.number, True))
    return found


def _decided(process: ProcessFacts) -> list[int]:
    return [task.number for task in process.tasks if task.decided]


def _nodes(process: ProcessFacts, rows: list[Row[Any]]) -> dict[int, Node]:
    edges = {task.number: task.value_edge for task in process.tasks if _without_value(task)}
    return {row.number: Node(TaskState(row.state), row.pending, edges.get(row.number, row.value_of)) for row in rows}


def _without_value(task: TaskFacts) -> bool:
    return task.state is TaskState.FOLLOWS and task.value_of is None


def _tasks(connection: Connection, processes: Mapping[int, ProcessFacts]) -> dict[int, list[Row[Any]]]:
    same = sa.and_(DECISION.c.process_id == TASK.c.process_id, DECISION.c.number == TASK.c.number)
    names = ("process_id", "number", "actor", "state", "pending", "value_of", "not_before", "ready_at")
    query: sa.Select[Any] = (
        sa.select(
            *(TASK.c[name] for name in names),
            sa.extract("epoch", TASK.c.delay).cast(sa.Double).label("delay"),
            DECISION.c.state.label("decision"),
            PROCESS.c.priority,
        )
        .select_from(TASK.outerjoin(DECISION, same).join(PROCESS, PROCESS.c.id == TASK.c.process_id))
        .where(TASK.c.process_id == sa.any_(sa.cast(sorted(processes), Array(sa.BigInteger))))
        .order_by(TASK.c.process_id, TASK.c.number)
    )
    found = defaultdict[int, list[Row[Any]]](list)
    for row in connection.execute(query).all():
        found[row.process_id].append(row)
    return found


def _arrows(connection: Connection, processes: Mapping[int, ProcessFacts]) -> dict[int, list[Arrow]]:
    these = EDGE.c.process_id == sa.any_(sa.cast(sorted(processes), Array(sa.BigInteger)))
    found = defaultdict[int, list[Arrow]](list)
    for row in connection.execute(sa.select(*EDGE.c).where(these)):
        found[row.process_id].append(Arrow(row.source, row.target, row.value))
    return found


#: What is put right by this.
CASES = frozenset(
    {
        Case.DECIDED_NOT_APPLIED,
        Case.NOT_QUEUED,
        Case.EDGE_LOST,
        Case.NOT_ADVANCED,
        Case.TOO_EARLY,
        Case.OPEN_DECISION,
        Case.ENDED_TOO_EARLY,
    }
)
