"""A process and all of its graph, as a restart has to know them: under the locks of the graph and of the process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app.errors import NotFound
from processes import inconsistent, restarting, statements
from processes.graph import Arrow, Node
from processes.model import EDGE, GRAPH, PROCESS, ROOT, TASK
from processes.restarting import Plan
from processes.states import ProcessState, TaskState

_ID_LIMIT = 2**63


@dataclass(frozen=True)
class Subject:
    """A process."""

    id: int
    name: str
    state: ProcessState
    priority: int
    begun: bool


def locked(connection: Connection, process_id: int) -> Subject:
    """The process, under the locks of its graph and its own: in this order, as everybody."""
    if type(process_id) is not int or not 0 < process_id < _ID_LIMIT:
        raise NotFound(f"there is no process {process_id!r:.100}")
    while True:
        # Going back gives up the locks, and nothing else.
        with connection.begin_nested() as attempt:
            graph = statements.locking().execute(connection, {"p_ids": [process_id]}).all()
            row = connection.execute(_PROCESS, {"p_id": process_id}).one_or_none()
            if row is None:
                raise NotFound(
                    f"there is no process {process_id}: 'tidemill process search' finds those that there are"
                )
            if graph or row.begun_at is None or _lost_its_graph(connection, process_id):
                return Subject(row.id, row.name, ProcessState(row.state), row.priority, row.begun_at is not None)
            # It began between the two: its graph is to be locked first.
            attempt.rollback()


_COLUMNS = (PROCESS.c.id, PROCESS.c.name, PROCESS.c.state, PROCESS.c.priority, PROCESS.c.begun_at)
_PROCESS = sa.select(*_COLUMNS).where(PROCESS.c.id == sa.bindparam("p_id", type_=sa.BigInteger)).with_for_update()


def _lost_its_graph(connection: Connection, process_id: int) -> bool:
    return bool(inconsistent.without_graph(connection, [process_id]))


@dataclass
class Whole:
    nodes: dict[int, Node]
    arrows: list[Arrow]
    creators: dict[int, int | None]
    actors: dict[int, str]
    waiting: dict[int, tuple[Any, Any]]
    #: The highest number that a task ever had: late answers to one that is forgotten must not find another one.
    highest: int

    @classmethod
    def load(cls, connection: Connection, process_id: int) -> Whole:
        delay = sa.extract("epoch", TASK.c.delay).cast(sa.Double).label("delay_seconds")
        # Not what they were called with and came to, which of all tasks together may be more than memory holds.
        columns = [TASK.c[name] for name in ("number", "state", "pending", "value_of", "created_by", "actor")]
        query = sa.select(*columns, TASK.c.not_before, delay).where(TASK.c.process_id == process_id)
        tasks = connection.execute(query).all()
        edges = connection.execute(
            sa.select(EDGE.c.source, EDGE.c.target, EDGE.c.value).where(EDGE.c.process_id == process_id)
        )
        counted = connection.execute(sa.select(GRAPH.c.tasks).where(GRAPH.c.process_id == process_id)).scalar()
        return cls(
            {row.number: Node(_state(row), row.pending, row.value_of) for row in tasks},
            [Arrow(*row) for row in edges],
            {row.number: row.created_by for row in tasks},
            {row.number: row.actor for row in tasks},
            {row.number: (row.not_before, row.delay_seconds) for row in tasks},
            max([counted or 0, *(row.number for row in tasks)]),
        )

    def lost(self, task: int | None) -> bool:
        """From the start, it is begun from nothing where a part of it is gone."""
        ends = {end for arrow in self.arrows for end in (arrow.source, arrow.target)}
        return not self.nodes or (task in (None, ROOT) and not ends | {ROOT} <= self.nodes.keys())

    def plan(self, process_id: int, numbers: Sequence[int]) -> Plan:
        for number in numbers:
            if number not in self.nodes:
                raise NotFound(f"process {process_id} has no task {number!r:.100}; 'tidemill process show' lists them")
        there = [arrow for arrow in self.arrows if {arrow.source, arrow.target} <= self.nodes.keys()]
        return restarting.plan(self.creators, there, numbers)

    def waits_for(self, number: int) -> set[int]:
        return {arrow.source for arrow in self.arrows if arrow.target == number and not arrow.value}


def _state(row: Any) -> TaskState:
    """One that had decided whose value it has still has that value, also when it was aborted then."""
    aborted = row.state == TaskState.ABORTED and row.value_of is not None
    return TaskState.FOLLOWS if aborted else TaskState(row.state)
