"""What a restart writes, once it is planned. Under the locks of the graph and of the process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from processes import restarting, statements
from processes.graph import Node
from processes.model import ANSWER, BROKEN_TASK, DECISION, EDGE, PREFERENCES, PROCESS, TASK
from processes.restarting import Plan
from processes.statements import NOW
from processes.states import DecisionState, ProcessState, TaskState
from processes.whole import Subject, Whole


def write(connection: Connection, process: Subject, found: Whole, planned: Plan) -> dict[int, str]:
    """Returns what can be handed out now, with its actors."""
    after = restarting.applied(found.nodes, found.arrows, planned)
    _forget(connection, process.id, found, planned)
    aborted = process.state == ProcessState.ABORTED
    moved = {number for number, node in after.items() if node != found.nodes[number]}
    # As they are written: of an aborted process, also what only follows, which was aborted with it.
    changed = sorted(moved | planned.again | {number for number in after if aborted and _follows(after[number])})
    _anew(connection, process.id, sorted(planned.again), sorted(planned.follows))
    ready = [number for number in sorted(planned.again) if after[number].state is TaskState.READY]
    unfinished = [node for node in after.values() if node.state is not TaskState.FINISHED]
    broken = sum(node.state is TaskState.BROKEN for node in unfinished)
    rows: dict[str, list[tuple[Any, ...]]] = {
        "changed": [
            (process.id, number, after[number].state.value, after[number].pending, after[number].value_of)
            for number in changed
        ],
        "ready": [
            (process.id, number, found.actors[number], -process.priority, *found.waiting[number]) for number in ready
        ],
        "graphs": [(process.id, found.highest, len(unfinished), broken)],
    }
    statements.writing().execute(connection, statements.parameters(rows, statements.WRITTEN))
    _begin_anew(connection, process, broken=broken > 0)
    return {number: found.actors[number] for number in ready}


def _follows(node: Node) -> bool:
    return node.state is TaskState.FOLLOWS


def _forget(connection: Connection, process_id: int, found: Whole, planned: Plan) -> None:
    gone = sorted(planned.forgotten)
    again = sorted(planned.again)
    for table in (TASK, DECISION, ANSWER):
        if gone:
            connection.execute(sa.delete(table).where(table.c.process_id == process_id, table.c.number.in_(gone)))
    connection.execute(
        sa.delete(BROKEN_TASK).where(
            BROKEN_TASK.c.process_id == process_id, BROKEN_TASK.c.number.in_([*gone, *again, *planned.follows])
        )
    )
    kept = restarting.kept_arrows(found.arrows, planned)
    dropped = sorted(set(found.arrows) - set(kept))
    if dropped:
        arrows = statements.told("arrows", statements.ARROWS)
        same = [EDGE.c[name] == arrows.c[name] for name in statements.ARROWS]
        rows = {"arrows": [(process_id, *arrow) for arrow in dropped]}
        parameters = statements.parameters(rows, {"arrows": statements.ARROWS})
        connection.execute(sa.delete(EDGE).where(*same), parameters)


def _anew(connection: Connection, process_id: int, again: Sequence[int], follows: Sequence[int]) -> None:
    clean = {"result": None, "failed": False, "ended_at": None, "ready_at": None}
    numbers = [*again, *follows]
    connection.execute(
        sa.update(TASK).where(TASK.c.process_id == process_id, TASK.c.number.in_(numbers)).values(**clean)
    )
    connection.execute(
        sa.update(DECISION)
        .where(DECISION.c.process_id == process_id, DECISION.c.number.in_(again))
        .values(
            state=DecisionState.FINISH,
            epoch=DECISION.c.epoch + 1,
            pass_key=None,
            recovery_time=None,
            not_before=None,
            error=None,
            failures=0,
            restarts=0,
            attempts=0,
            alone=False,
        )
    )


def _begin_anew(connection: Connection, process: Subject, *, broken: bool) -> None:
    """It has all its time again."""
    of = sa.select(PREFERENCES.c.process_timeout).where(PREFERENCES.c.name == process.name).scalar_subquery()
    values = {
        "state": ProcessState.BROKEN if broken else ProcessState.ACTIVE,
        "value": None,
        "ended_at": None,
        "deadline_at": NOW + of,
        "recovery_time": NOW + of,
    }
    if not broken:
        values["error"] = None
    connection.execute(sa.update(PROCESS).where(PROCESS.c.id == process.id).values(**values))
