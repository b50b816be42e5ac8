"""The statements by which decisions are accepted, each for any number of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP

from app.arrays import Array
from app.prepared import Prepared
from processes.model import (
    ANSWER,
    BROKEN_TASK,
    DECISION,
    EDGE,
    GRAPH,
    PREFERENCES,
    PREFIX,
    PROCESS,
    TASK,
)
from processes.states import DecisionState, ProcessState, TaskState

Rows = Sequence[Sequence[Any]]
Columns = dict[str, sa.types.TypeEngine[Any]]

KEY: Columns = {"process_id": sa.BigInteger(), "number": sa.Integer()}
_MOMENT = TIMESTAMP(timezone=True)
NOW = sa.func.clock_timestamp()
#: Of processes whose type nobody has declared to this database.
IDLE = sa.literal_column("'10 minutes'::interval", sa.Interval)

ENDED: Columns = KEY | {"error": sa.Text()}
CREATED: Columns = KEY | {
    "actor": sa.Text(),
    "state": sa.Text(),
    "pending": sa.Integer(),
    "arguments": sa.Text(),
    "uses": sa.Text(),
    "created_by": sa.Integer(),
    "policy": sa.Text(),
    "not_before": _MOMENT,
    "delay": sa.Double(),
}
ARROWS: Columns = {
    "process_id": sa.BigInteger(),
    "source": sa.Integer(),
    "target": sa.Integer(),
    "value": sa.Boolean(),
}
FINISHED: Columns = KEY | {"value_of": sa.Integer(), "result": sa.Text(), "failed": sa.Boolean()}
CHANGED: Columns = KEY | {"state": sa.Text(), "pending": sa.Integer(), "value_of": sa.Integer()}
READY: Columns = KEY | {
    "actor": sa.Text(),
    "rank": sa.SmallInteger(),
    "not_before": _MOMENT,
    "delay": sa.Double(),
}
GRAPHS: Columns = {
    "process_id": sa.BigInteger(),
    "tasks": sa.Integer(),
    "unfinished": sa.Integer(),
    "broken": sa.Integer(),
}
PROCESSES: Columns = {"process_id": sa.BigInteger()} | {name: sa.Text() for name in ("state", "value", "error")}
#: What one acceptance writes, by the name of its rows.
WRITTEN: dict[str, Columns] = {
    "ended": ENDED,
    "created": CREATED,
    "arrows": ARROWS,
    "finished": FINISHED,
    "changed": CHANGED,
    "ready": READY,
    "graphs": GRAPHS,
    "processes": PROCESSES,
}


def told(name: str, columns: Columns) -> Any:
    """Rows that come as one array a column."""
    arrays = (sa.bindparam(f"p_{name}_{column}", type_=Array(kind)) for column, kind in columns.items())
    described = (sa.column(column, kind) for column, kind in columns.items())
    return sa.func.unnest(*arrays).table_valued(*described).render_derived(name=name)


def parameters(rows: Mapping[str, Rows], of: Mapping[str, Columns]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, columns in of.items():
        by_column = list(zip(*rows.get(name, ()), strict=True)) or [()] * len(columns)
        found |= {f"p_{name}_{column}": list(values) for column, values in zip(columns, by_column, strict=True)}
    return found


def _of(table: sa.Table, rows: Any) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return table.c.process_id == rows.c.process_id, table.c.number == rows.c.number


@cache
def locking() -> Prepared:
    """The graphs, in the order of their numbers, as everybody who locks several."""
    ids = sa.bindparam("p_ids", type_=Array(sa.BigInteger))
    query = sa.select(GRAPH.c.process_id, GRAPH.c.tasks, GRAPH.c.unfinished, GRAPH.c.broken)
    query = query.where(GRAPH.c.process_id == sa.any_(ids)).order_by(GRAPH.c.process_id).with_for_update()
    return Prepared("graphs_locked", query)


@cache
def standing() -> Prepared:
    """How the tasks stand that were answered for; their decisions are locked."""
    keys = told("keys", KEY)
    query = (
        sa.select(
            TASK.c.process_id,
            TASK.c.number,
            TASK.c.actor,
            TASK.c.state,
            TASK.c.pending,
            TASK.c.value_of,
            TASK.c.policy,
            TASK.c.created_at,
            DECISION.c.state.label("decision"),
            DECISION.c.epoch,
            DECISION.c.pass_key,
            DECISION.c.failures,
            DECISION.c.attempts,
            DECISION.c.error.is_not(None).label("troubled"),
            PROCESS.c.state.label("process"),
            PROCESS.c.priority,
            PREFERENCES.c.accept_first,
            PREFERENCES.c.retry,
            PREFERENCES.c.fail_types,
        )
        .select_from(
            keys.join(TASK, sa.and_(*_of(TASK, keys)))
            .join(DECISION, sa.and_(*_of(DECISION, keys)))
            .join(PROCESS, PROCESS.c.id == keys.c.process_id)
            .outerjoin(PREFERENCES, PREFERENCES.c.name == TASK.c.actor)
        )
        .order_by(TASK.c.process_id, TASK.c.number)
        .with_for_update(of=DECISION)
    )
    return Prepared("tasks_standing", query)


@cache
def touched() -> Prepared:
    """The arrows out of the tasks, and out of what follows them; `deep`: out of all that waits for them. An arrow may
    come twice.

    Each task by itself, fenced by OFFSET 0: the planner expects a recursion to bring thousands of rows, and would read
    whole tables to join with them."""
    keys = told("keys", KEY | {"deep": sa.Boolean()})
    closure = sa.select(keys.c.process_id, keys.c.number, keys.c.deep).cte("closure", recursive=True)
    out_of = (EDGE.c.process_id == closure.c.process_id, EDGE.c.source == closure.c.number)
    followed = sa.or_(EDGE.c.value, closure.c.deep)
    following = sa.select(EDGE.c.target).where(*out_of, followed).offset(FENCE).lateral("following")
    closure = closure.union(
        sa.select(closure.c.process_id, following.c.target, closure.c.deep).join(following, sa.true())
    )
    target = TASK.alias("target")
    arrow = (
        sa.select(
            EDGE.c.source,
            EDGE.c.target,
            EDGE.c.value,
            target.c.state,
            target.c.pending,
            target.c.value_of,
            target.c.actor,
            target.c.not_before,
            sa.extract("epoch", target.c.delay).cast(sa.Double).label("delay"),
        )
        .join_from(EDGE, target, sa.and_(target.c.process_id == EDGE.c.process_id, target.c.number == EDGE.c.target))
        .where(EDGE.c.process_id == closure.c.process_id, EDGE.c.source == closure.c.number)
        .offset(FENCE)
        .lateral("arrow")
    )
    return Prepared("tasks_touched", sa.select(closure.c.process_id, *arrow.c).join(arrow, sa.true()))


FENCE = sa.literal_column("0", sa.Integer)


@cache
def nodes() -> sa.Select[Any]:
    """Tasks that a decider has named by their promises."""
    keys = told("keys", KEY)
    columns = (TASK.c.process_id, TASK.c.number, TASK.c.state, TASK.c.pending, TASK.c.value_of)
    return sa.select(*columns).where(*_of(TASK, keys))


@cache
def results() -> sa.Select[Any]:
    keys = told("keys", KEY)
    text = sa.cast(TASK.c.result, sa.Text).label("result")
    return sa.select(TASK.c.process_id, TASK.c.number, text, TASK.c.failed).where(*_of(TASK, keys))


def keyed(rows: Sequence[Sequence[Any]], columns: Iterable[str] = KEY) -> dict[str, Any]:
    """The parameters of `keys`: arrays, since lists of pairs grow into statements that the server cannot parse."""
    by_column = list(zip(*rows, strict=True)) or [() for _ in columns]
    return {f"p_keys_{name}": list(values) for name, values in zip(columns, by_column, strict=True)}


@cache
def writing() -> Prepared:
    """Everything that accepted decisions change, in one statement (P4)."""
    rows = {name: told(name, columns) for name, columns in WRITTEN.items()}
    parts = (
        _ended(rows["ended"]),
        _created(rows["created"]),
        _arrows(rows["arrows"]),
        _finished(rows["finished"]),
        _changed(rows["changed"]),
        queueing(rows["ready"]),
        _graphs(rows["graphs"]),
        _processes(rows["processes"]),
    )
    written = [part.cte(f"write_{number}") for number, part in enumerate(parts)]
    return Prepared("decisions_accepted", sa.select(sa.literal_column("1", sa.Integer).label("one")).add_cte(*written))


def _ended(rows: Any) -> Any:
    return (
        sa.update(DECISION)
        .where(*_of(DECISION, rows))
        .values(
            state=DecisionState.FINISH,
            pass_key=None,
            recovery_time=None,
            ended_at=NOW,
            error=rows.c.error,
        )
    )


def _created(rows: Any) -> Any:
    columns = {
        **{name: rows.c[name] for name in ("process_id", "number", "actor")},
        "state": sa.cast(rows.c.state, TASK.c.state.type),
        "pending": rows.c.pending,
        "arguments": sa.cast(rows.c.arguments, sa.JSON),
        "uses": sa.cast(rows.c.uses, ARRAY(sa.Integer)),
        "created_by": rows.c.created_by,
        "policy": sa.cast(rows.c.policy, JSONB),
        "not_before": rows.c.not_before,
        "delay": span(rows.c.delay),
        "ready_at": sa.case((rows.c.state == sa.literal_column(f"'{TaskState.READY}'"), NOW)),
    }
    return sa.insert(TASK).from_select(list(columns), sa.select(*columns.values()))


def span(seconds: Any) -> Any:
    return seconds * sa.literal_column("'1 second'::interval", sa.Interval)


def _arrows(rows: Any) -> Any:
    columns = {name: rows.c[name] for name in ARROWS}
    return sa.insert(EDGE).from_select(list(columns), sa.select(*columns.values()))


def _finished(rows: Any) -> Any:
    ends = {
        "state": TaskState.FINISHED,
        "pending": 0,
        "value_of": rows.c.value_of,
        "result": sa.cast(rows.c.result, sa.JSON),
        "failed": rows.c.failed,
        "ended_at": NOW,
    }
    return sa.update(TASK).where(*_of(TASK, rows)).values(**ends)


def _changed(rows: Any) -> Any:
    ready = rows.c.state == sa.literal_column(f"'{TaskState.READY}'")
    return (
        sa.update(TASK)
        .where(*_of(TASK, rows))
        .values(
            state=sa.cast(rows.c.state, TASK.c.state.type),
            pending=rows.c.pending,
            value_of=rows.c.value_of,
            ready_at=sa.case((ready, NOW), else_=TASK.c.ready_at),
        )
    )


def queueing(rows: Any) -> Any:
    """Decisions of tasks that are ready."""
    # One moment for all columns, as the time of the clock would not be.
    ready = sa.func.statement_timestamp() + sa.func.coalesce(span(rows.c.delay), _ZERO)
    due = sa.func.greatest(ready, rows.c.not_before)
    # A task waits to be handed out from when it may be.
    deadline = due + PREFERENCES.c.task_timeout
    columns = {
        "process_id": rows.c.process_id,
        "number": rows.c.number,
        "queue": sa.literal_column(f"'{PREFIX}.'") + rows.c.actor,
        "rank": rows.c.rank,
        "due_at": due,
        "deadline_at": deadline,
        "force_at": sa.case((PREFERENCES.c.force_finish_after_task_timeout, deadline)),
        "recovery_time": deadline,
    }
    source = sa.select(*columns.values()).select_from(rows.outerjoin(PREFERENCES, PREFERENCES.c.name == rows.c.actor))
    insert = postgresql.insert(DECISION).from_select(list(columns), source)
    anew = {name: insert.excluded[name] for name in list(columns)[2:]}
    clean = {"state": DecisionState.QUEUED, "pass_key": None, "not_before": None, "queued_at": NOW, "ended_at": None}
    return insert.on_conflict_do_update(index_elements=list(DECISION.primary_key), set_=anew | clean)


_ZERO = sa.literal_column("'0'::interval", sa.Interval)


def _graphs(rows: Any) -> Any:
    """P7: nothing has to look after it for a while, or ever again."""
    idle = (
        sa.select(PREFERENCES.c.idle_process_timeout)
        .where(PREFERENCES.c.name == PROCESS.c.name, PROCESS.c.id == rows.c.process_id)
        .scalar_subquery()
    )
    return (
        sa.update(GRAPH)
        .where(GRAPH.c.process_id == rows.c.process_id)
        .values(
            tasks=rows.c.tasks,
            unfinished=rows.c.unfinished,
            broken=rows.c.broken,
            changed_at=NOW,
            recovery_time=sa.case((rows.c.unfinished > 0, NOW + sa.func.coalesce(idle, IDLE))),
        )
    )


def _processes(rows: Any) -> Any:
    over = rows.c.state == sa.literal_column(f"'{ProcessState.FINISHED}'")
    return (
        sa.update(PROCESS)
        .where(PROCESS.c.id == rows.c.process_id)
        .values(
            state=sa.cast(rows.c.state, PROCESS.c.state.type),
            value=sa.cast(rows.c.value, sa.JSON),
            error=rows.c.error,
            ended_at=sa.case((over, NOW)),
            recovery_time=sa.case((~over, PROCESS.c.deadline_at)),
        )
    )


def broken(rows: Rows) -> Any:
    words = ("process_id", "number", "actor", "type", "message", "traceback")
    insert = postgresql.insert(BROKEN_TASK).values([dict(zip(words, row, strict=True)) for row in rows])
    taken = {word: insert.excluded[word] for word in words[3:]} | {"at": NOW}
    return insert.on_conflict_do_update(index_elements=["process_id", "number"], set_=taken)


@cache
def healed() -> Any:
    keys = told("keys", KEY)
    return sa.delete(BROKEN_TASK).where(*_of(BROKEN_TASK, keys))


RECORDED: Columns = KEY | {name: sa.Text() for name in ("worker", "refused", "error", "traceback")}
#: Of a task; more of them say nothing new.
ANSWERS_MOST = 200


@cache
def recorded() -> Any:
    rows = told("recorded", RECORDED)
    before = sa.select(sa.func.count()).select_from(ANSWER).where(*_of(ANSWER, rows)).correlate(rows).scalar_subquery()
    return sa.insert(ANSWER).from_select(list(RECORDED), sa.select(*rows.c).where(before < ANSWERS_MOST))


@cache
def again() -> Any:
    """Back into the queue, to be tried again."""
    rows = told("again", KEY | {"wait": sa.Double(), "error": sa.Text()})
    return (
        sa.update(DECISION)
        .where(*_of(DECISION, rows))
        .values(
            state=DecisionState.QUEUED,
            pass_key=None,
            recovery_time=DECISION.c.deadline_at,
            failures=DECISION.c.failures + 1,
            not_before=NOW + span(rows.c.wait),
            queued_at=NOW,
            error=rows.c.error,
        )
    )


def warm_up() -> None:
    for build in (locking, standing, touched, writing):
        build()
