"""A process made anew from what another one has come to. Under the locks of that one, which stays as it is.

Tasks keep their numbers, so that what they are told and whose value they have means the same. What was answered to the
original stays with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app.arrays import Array
from processes.model import BROKEN_TASK, DECISION, EDGE, GRAPH, PREFERENCES, PROCESS, TASK
from processes.restarting import Plan
from processes.statements import IDLE, NOW
from processes.states import DecisionState, ProcessState
from processes.whole import Subject, Whole

_OPEN = DECISION.c.state != DecisionState.FINISH
#: An idempotency key names one process; all else that it was registered with is the same.
_SAME = ("name", "priority", "custom_id", "attributes", "arguments")


def copied(connection: Connection, original: Subject, found: Whole, planned: Plan) -> Subject:
    """With all that is not forgotten, and nothing of it open: `renewing.write` makes of it what it is to be."""
    begun = {"state": sa.literal(ProcessState.ACTIVE, PROCESS.c.state.type), "begun_at": NOW, "error": PROCESS.c.error}
    copy = _process(connection, original, begun)
    kept = found.nodes.keys() - planned.forgotten
    connection.execute(sa.insert(GRAPH).values(process_id=copy.id, tasks=found.highest, unfinished=0))
    closed = {
        "state": sa.literal(DecisionState.FINISH, DECISION.c.state.type),
        "pass_key": sa.null(),
        "recovery_time": sa.null(),
        "ended_at": sa.case((_OPEN, NOW), else_=DECISION.c.ended_at),
    }
    for table, changed in ((TASK, {}), (DECISION, closed), (BROKEN_TASK, {})):
        _rows(connection, table, original.id, copy.id, changed, {"number": kept})
    _rows(connection, EDGE, original.id, copy.id, {}, {"source": kept, "target": kept})
    return copy


def registered(connection: Connection, original: Subject) -> Subject:
    """As if it had just been registered: of one that has lost a part of itself."""
    soon = NOW + sa.func.coalesce(_preference("idle_process_timeout"), IDLE)
    values = {"recovery_time": soon, "deadline_at": NOW + _preference("process_timeout")}
    return _process(connection, original, values)


def _preference(word: str) -> Any:
    return sa.select(PREFERENCES.c[word]).where(PREFERENCES.c.name == PROCESS.c.name).scalar_subquery()


def _process(connection: Connection, original: Subject, values: Mapping[str, Any]) -> Subject:
    columns = {name: PROCESS.c[name] for name in _SAME} | {"copied_from": PROCESS.c.id} | dict(values)
    rows = sa.select(*columns.values()).where(PROCESS.c.id == original.id)
    made = connection.execute(sa.insert(PROCESS).from_select(list(columns), rows).returning(PROCESS.c.id)).scalar_one()
    return replace(original, id=made)


def _rows(
    connection: Connection,
    table: sa.Table,
    original: int,
    copy: int,
    changed: Mapping[str, Any],
    kept: Mapping[str, Collection[int]],
) -> None:
    columns: dict[str, Any] = {each.name: each for each in table.c if each.computed is None}
    columns |= {"process_id": sa.literal(copy, sa.BigInteger)} | dict(changed)
    these = [table.c[name] == sa.any_(sa.cast(sorted(numbers), Array(sa.Integer))) for name, numbers in kept.items()]
    rows = sa.select(*columns.values()).where(table.c.process_id == original, *these)
    connection.execute(sa.insert(table).from_select(list(columns), rows))
