"""Processes that have lost a part of themselves (R3): marked broken, or restarted where their type says so."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Connection, Row

from app.arrays import Array
from processes.model import BROKEN_TASK, DECISION, EDGE, GRAPH, PREFERENCES, PROCESS, ROOT, TASK
from processes.statements import IDLE, NOW
from processes.states import ENDED, DecisionState, ProcessState

log = logging.getLogger(__name__)


def without_graph(connection: Connection, ids: Sequence[int]) -> set[int]:
    """Of these processes."""
    if not ids:
        return set()
    these = GRAPH.c.process_id == sa.any_(sa.cast(list(ids), Array(sa.BigInteger)))
    return set(ids) - set(connection.execute(sa.select(GRAPH.c.process_id).where(these)).scalars())


def repair(connection: Connection, rows: Sequence[Row[Any]]) -> int:
    """Of decisions that nobody can make, under the locks of their graphs: their task or graph is gone, or their process
    is over."""
    for row in rows:
        lost = "process" if row.process is None else "task" if row.actor is None else "graph"
        why = f"the process is {row.process}" if row.process in ENDED else f"inconsistent: it has lost its {lost}"
        process = None if row.process is None or row.process in ENDED else _locked(connection, row.process_id)
        if process is not None and process.when_inconsistent == "restart":
            log.warning("process %s is restarted: task %s has lost its %s", row.process_id, row.number, lost)
            renew(connection, row.process_id)
            continue
        ends = {"state": DecisionState.FINISH, "pass_key": None, "recovery_time": None, "ended_at": NOW, "error": why}
        mine = (DECISION.c.process_id == row.process_id, DECISION.c.number == row.number)
        connection.execute(sa.update(DECISION).where(*mine).values(**ends))
        if process is not None:
            log.error("process %s is broken: task %s has lost its %s", row.process_id, row.number, lost)
            told = {"state": ProcessState.BROKEN, "error": f"{why}, task {row.number}", "recovery_time": None}
            connection.execute(sa.update(PROCESS).where(PROCESS.c.id == row.process_id).values(**told))
    return len(rows)


def _locked(connection: Connection, process_id: int) -> Any:
    query = (
        sa.select(PROCESS.c.id, sa.func.coalesce(PREFERENCES.c.when_inconsistent, "break").label("when_inconsistent"))
        .outerjoin(PREFERENCES, PREFERENCES.c.name == PROCESS.c.name)
        .where(PROCESS.c.id == process_id, PROCESS.c.state.not_in(ENDED))
    )
    return connection.execute(query.with_for_update(of=PROCESS)).one_or_none()


def renew(connection: Connection, process_id: int) -> None:
    """As if it had just been registered, but for the numbers of its tasks, and the epoch of the first: what comes late
    must not be taken for an answer to what is asked now."""
    mine = {table: table.c.process_id == process_id for table in (TASK, EDGE, BROKEN_TASK, DECISION)}
    highest = connection.execute(
        sa.select(
            sa.func.greatest(
                sa.select(sa.func.max(TASK.c.number)).where(mine[TASK]).scalar_subquery(),
                sa.select(sa.func.max(DECISION.c.number)).where(mine[DECISION]).scalar_subquery(),
                sa.select(GRAPH.c.tasks).where(GRAPH.c.process_id == process_id).scalar_subquery(),
            )
        )
    ).scalar_one()
    for table in (TASK, EDGE, BROKEN_TASK):
        connection.execute(sa.delete(table).where(mine[table]))
    connection.execute(sa.delete(DECISION).where(mine[DECISION], DECISION.c.number != ROOT))
    again = {"epoch": DECISION.c.epoch + 1, "failures": 0, "restarts": 0, "attempts": 0, "alone": False}
    ends = {"state": DecisionState.FINISH, "pass_key": None, "recovery_time": None, "not_before": None, "error": None}
    connection.execute(sa.update(DECISION).where(mine[DECISION]).values(**again, **ends))
    if highest is not None:
        counts = {"tasks": highest, "unfinished": 1, "broken": 0, "changed_at": NOW, "recovery_time": NOW + IDLE}
        graph = postgresql.insert(GRAPH).values(process_id=process_id, **counts)
        connection.execute(graph.on_conflict_do_update(index_elements=["process_id"], set_=counts))
    timeout = sa.select(PREFERENCES.c.process_timeout).where(PREFERENCES.c.name == PROCESS.c.name).scalar_subquery()
    anew = {"state": ProcessState.REGISTERED, "recovery_time": NOW, "deadline_at": NOW + timeout}
    clean = {"value": None, "error": None, "ended_at": None}
    connection.execute(sa.update(PROCESS).where(PROCESS.c.id == process_id).values(**anew, **clean))
