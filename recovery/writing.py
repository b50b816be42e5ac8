"""The statements by which processes are put right, for any number of them at once. Under the locks of their graphs.

A decision may be claimed meanwhile, and given back: so what changes it says again in which state it is to be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Connection

from app.arrays import Array
from processes import statements
from processes.model import BROKEN_TASK, DECISION, EDGE, GRAPH, PREFERENCES, PREFIX, PROCESS, ROOT, TASK, Key
from processes.statements import ARROWS, CHANGED, IDLE, KEY, NOW, READY, told
from processes.states import ENDED, DecisionState, ProcessState, TaskState
from recovery.diagnose import TIMEOUT


def _execute(connection: Connection, statement: Any, name: str, columns: statements.Columns, rows: Any) -> None:
    connection.execute(statement, statements.parameters({name: sorted(rows)}, {name: columns}))


def _of(table: sa.Table, rows: Any) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return table.c.process_id == rows.c.process_id, table.c.number == rows.c.number


def _among(column: sa.ColumnElement[int], ids: Collection[int]) -> sa.ColumnElement[bool]:
    return column == sa.any_(sa.cast(sorted(ids), Array(sa.BigInteger)))


def tasks(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """How they stand: number, state, pending, value_of."""
    by = told("changed", CHANGED)
    ready = by.c.state == sa.literal_column(f"'{TaskState.READY}'")
    over = by.c.state == sa.literal_column(f"'{TaskState.FINISHED}'")
    values = {
        "state": sa.cast(by.c.state, TASK.c.state.type),
        "pending": by.c.pending,
        "value_of": by.c.value_of,
        "ready_at": sa.case((ready, sa.func.coalesce(TASK.c.ready_at, NOW)), else_=TASK.c.ready_at),
        "ended_at": sa.case((over, sa.func.coalesce(TASK.c.ended_at, NOW))),
    }
    # In the order of the keys, as the rows come: in two steps, what is to be unique never is twice.
    connection.execute(
        sa.update(TASK).where(*_of(TASK, by)).values(**values),
        statements.parameters({"changed": rows}, {"changed": CHANGED}),
    )


def edges(connection: Connection, rows: Iterable[tuple[int, int, int, bool]]) -> None:
    by = told("arrows", ARROWS)
    insert = postgresql.insert(EDGE).from_select(list(ARROWS), sa.select(*by.c)).on_conflict_do_nothing()
    _execute(connection, insert, "arrows", ARROWS, rows)


_ENDED: statements.Columns = KEY | {"why": sa.Text(), "anew": sa.Boolean()}


def end(connection: Connection, rows: Iterable[tuple[int, int, str, bool]]) -> None:
    """Decisions that nobody waits for. `anew`: it will be asked for again, and what comes until then does not count."""
    by = told("ended", _ENDED)
    ends = {"state": DecisionState.FINISH, "pass_key": None, "recovery_time": None, "ended_at": NOW, "error": by.c.why}
    epoch = DECISION.c.epoch + sa.cast(by.c.anew, sa.Integer)
    ending = sa.update(DECISION).where(*_of(DECISION, by), DECISION.c.state != DecisionState.FINISH)
    _execute(connection, ending.values(**ends, epoch=epoch), "ended", _ENDED, rows)


def queue(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    connection.execute(
        statements.queueing(told("ready", READY)), statements.parameters({"ready": rows}, {"ready": READY})
    )


def put_right(connection: Connection, keys: Iterable[Key]) -> None:
    """Decisions that wait where nobody claims them, or that somebody has without end."""
    by = told("keys", KEY)
    actor = sa.select(TASK.c.actor).where(*_of(TASK, DECISION)).scalar_subquery()
    endless = sa.or_(
        DECISION.c.pass_key.is_(None), DECISION.c.recovery_time.is_(None), ~sa.func.isfinite(DECISION.c.recovery_time)
    )
    waits = DECISION.c.state == DecisionState.QUEUED
    lost = sa.or_(waits, sa.and_(DECISION.c.state == DecisionState.WORK, endless))
    values = {
        "state": DecisionState.QUEUED,
        "queue": sa.literal(f"{PREFIX}.") + actor,
        "pass_key": None,
        "due_at": sa.case((sa.func.isfinite(DECISION.c.due_at), DECISION.c.due_at), else_=NOW),
        "not_before": sa.case((sa.func.isfinite(DECISION.c.not_before), DECISION.c.not_before)),
        "recovery_time": DECISION.c.deadline_at,
        "queued_at": NOW,
    }
    _execute(connection, sa.update(DECISION).where(*_of(DECISION, by), lost).values(**values), "keys", KEY, keys)


_LATER: statements.Columns = KEY | {"seconds": sa.Double()}


def hold_back(connection: Connection, rows: Iterable[tuple[int, int, float]]) -> None:
    """R11: not to be handed out before."""
    by = told("later", _LATER)
    moment = NOW + sa.func.make_interval(0, 0, 0, 0, 0, 0, by.c.seconds)
    later = sa.update(DECISION).where(*_of(DECISION, by), DECISION.c.state == DecisionState.QUEUED)
    _execute(
        connection,
        later.values(not_before=sa.func.greatest(DECISION.c.not_before, moment)),
        "later",
        _LATER,
        rows,
    )


def make_start(connection: Connection, ids: Collection[int]) -> None:
    """R4 (7)"""
    columns = {
        "process_id": PROCESS.c.id,
        "number": sa.literal(ROOT),
        "actor": PROCESS.c.name,
        "state": sa.cast(TaskState.READY, TASK.c.state.type),
        "arguments": PROCESS.c.arguments,
        "ready_at": NOW,
    }
    source = sa.select(*columns.values()).where(_among(PROCESS.c.id, ids))
    connection.execute(postgresql.insert(TASK).from_select(list(columns), source).on_conflict_do_nothing())


def count(connection: Connection, ids: Collection[int]) -> None:
    """What the graphs of these say of their tasks, and when recovery looks at them; also of those that are gone."""
    idle = sa.func.coalesce(PREFERENCES.c.idle_process_timeout, IDLE)
    highest = sa.select(sa.func.max(DECISION.c.number)).where(DECISION.c.process_id == PROCESS.c.id).scalar_subquery()
    unfinished = sa.func.count(TASK.c.number).filter(TASK.c.state != TaskState.FINISHED)
    goes_on = PROCESS.c.state.not_in(ENDED)
    columns: dict[str, Any] = {
        "process_id": PROCESS.c.id,
        "tasks": sa.func.greatest(sa.func.max(TASK.c.number), highest, 0),
        "unfinished": unfinished,
        "broken": sa.func.count(TASK.c.number).filter(TASK.c.state == TaskState.BROKEN),
        "changed_at": NOW,
        "recovery_time": sa.case((sa.and_(goes_on, unfinished > 0), NOW + sa.func.max(idle))),
    }
    joined = PROCESS.outerjoin(TASK, TASK.c.process_id == PROCESS.c.id)
    joined = joined.outerjoin(PREFERENCES, PREFERENCES.c.name == PROCESS.c.name)
    source = sa.select(*columns.values()).select_from(joined).where(_among(PROCESS.c.id, ids)).group_by(PROCESS.c.id)
    insert = postgresql.insert(GRAPH).from_select(list(columns), source.order_by(PROCESS.c.id))
    anew: dict[str, Any] = {name: insert.excluded[name] for name in list(columns)[2:]}
    # Late answers to a task that was forgotten must not find another one: its number is not used again.
    anew["tasks"] = sa.func.greatest(GRAPH.c.tasks, insert.excluded.tasks)
    connection.execute(insert.on_conflict_do_update(index_elements=["process_id"], set_=anew))


def settle(connection: Connection, ids: Collection[int]) -> None:
    """The state of these follows from what their graphs count."""
    done, broken = GRAPH.c.unfinished == 0, GRAPH.c.broken > 0
    state = sa.case(
        (done, ProcessState.FINISHED.value), (broken, ProcessState.BROKEN.value), else_=ProcessState.ACTIVE.value
    )
    of, root, holder = BROKEN_TASK.c, TASK.alias("root"), TASK.alias("holder")
    why = sa.func.concat("task ", of.number, ", ", of.actor, ": ", of.type, ": ", of.message)
    told_of = sa.select(why).where(of.process_id == PROCESS.c.id).order_by(of.at.desc()).limit(1).scalar_subquery()
    held = sa.and_(
        holder.c.process_id == root.c.process_id,
        holder.c.number == sa.func.coalesce(root.c.value_of, root.c.number),
    )
    value = sa.select(holder.c.result).select_from(root.join(holder, held))
    value = value.where(root.c.process_id == PROCESS.c.id, root.c.number == ROOT)
    values = {
        "state": sa.cast(state, PROCESS.c.state.type),
        "value": sa.case((done, value.scalar_subquery())),
        "error": sa.case((~done & broken, sa.func.coalesce(PROCESS.c.error, told_of))),
        "ended_at": sa.case((done, sa.func.coalesce(PROCESS.c.ended_at, NOW))),
        "recovery_time": sa.case((~done, PROCESS.c.deadline_at)),
    }
    these = (PROCESS.c.id == GRAPH.c.process_id, _among(PROCESS.c.id, ids))
    connection.execute(sa.update(PROCESS).where(*these).values(**values))


def set_times(connection: Connection, ids: Collection[int]) -> None:
    """When they ended, and when recovery looks at them, as their state says."""
    over = PROCESS.c.state.in_(ENDED)
    active = PROCESS.c.state == ProcessState.ACTIVE
    ahead = sa.case((sa.or_(active, PROCESS.c.deadline_at > NOW), PROCESS.c.deadline_at))
    values = {
        "ended_at": sa.case((over, sa.func.coalesce(PROCESS.c.ended_at, NOW))),
        "recovery_time": sa.case(
            (over, None),
            (PROCESS.c.state == ProcessState.REGISTERED, PROCESS.c.recovery_time),
            (PROCESS.c.recovery_time > NOW, PROCESS.c.recovery_time),
            else_=ahead,
        ),
    }
    connection.execute(sa.update(PROCESS).where(_among(PROCESS.c.id, ids)).values(**values))


def unwatch(connection: Connection, ids: Collection[int]) -> None:
    """Graphs of processes that are gone."""
    connection.execute(sa.update(GRAPH).where(_among(GRAPH.c.process_id, ids)).values(recovery_time=None))


def abort_tasks(connection: Connection, ids: Collection[int]) -> None:
    left = TASK.c.state.not_in([TaskState.FINISHED, TaskState.ABORTED])
    ends = {"state": TaskState.ABORTED, "ended_at": NOW}
    connection.execute(sa.update(TASK).where(_among(TASK.c.process_id, ids), left).values(**ends))


_BROKEN: statements.Columns = {"process_id": sa.BigInteger(), "error": sa.Text()}


def break_off(connection: Connection, rows: Iterable[tuple[int, str]]) -> None:
    """R3: what has lost a part, and why."""
    by = told("broken", _BROKEN)
    breaking = sa.update(PROCESS).where(PROCESS.c.id == by.c.process_id)
    values = {"state": ProcessState.BROKEN, "error": by.c.error, "recovery_time": None, "ended_at": None}
    _execute(connection, breaking.values(**values), "broken", _BROKEN, rows)


def break_late(connection: Connection, ids: Collection[int]) -> None:
    """R5: over their `process_timeout`."""
    why = sa.func.coalesce(PROCESS.c.error, f"{TIMEOUT}: it has not finished within its process_timeout")
    breaking = sa.update(PROCESS).where(_among(PROCESS.c.id, ids))
    connection.execute(breaking.values(state=ProcessState.BROKEN, error=why, recovery_time=None))


def tell(connection: Connection, keys: Iterable[Key]) -> None:
    """Broken tasks are listed, with what their decision says."""
    by = told("keys", KEY)
    error = sa.func.coalesce(DECISION.c.error, "")
    kind = sa.func.split_part(error, ": ", 1)
    columns = {
        "process_id": TASK.c.process_id,
        "number": TASK.c.number,
        "actor": TASK.c.actor,
        "type": sa.case((kind != "", kind), else_="Unknown"),
        "message": sa.func.substr(error, sa.func.length(kind) + 3),
    }
    source = sa.select(*columns.values()).select_from(
        by.join(TASK, sa.and_(*_of(TASK, by))).outerjoin(DECISION, sa.and_(*_of(DECISION, by)))
    )
    insert = postgresql.insert(BROKEN_TASK).from_select(list(columns), source).on_conflict_do_nothing()
    _execute(connection, insert, "keys", KEY, keys)


def untell(connection: Connection, keys: Iterable[Key]) -> None:
    _execute(connection, statements.healed(), "keys", KEY, keys)
