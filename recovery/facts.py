"""The facts of processes and of what surrounds them, in a handful of queries for any number of processes.

Of tasks that have finished nothing is fetched: they are counted where they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.engine import Connection, Row

from app import limits, workers
from app.arrays import Array
from processes.model import BROKEN_TASK, DECISION, EDGE, GRAPH, PREFERENCES, PREFIX, PROCESS, TASK
from processes.polls import QUEUE_POLL
from processes.states import DecisionState, ProcessState, TaskState
from recovery.diagnose import Counted, GraphFacts, ProcessFacts, TaskFacts
from recovery.queues import DecisionFacts, QueueFacts, Surroundings

_QUEUE = cast(sa.Table, limits.Queue.__table__)
_FINISHED: sa.ColumnElement[Any] = sa.literal_column(f"'{TaskState.FINISHED}'")
_BROKEN: sa.ColumnElement[Any] = sa.literal_column(f"'{TaskState.BROKEN}'")
_OPEN = DECISION.c.state != sa.literal_column(f"'{DecisionState.FINISH}'")
_IDS = sa.bindparam("p_ids", type_=Array(sa.BigInteger))


def load(connection: Connection, process_ids: Iterable[int]) -> list[ProcessFacts]:
    """In the order of their ids; also of those of which nothing is left."""
    ids = {"p_ids": sorted(set(process_ids))}
    counted = {row.process_id: row for row in connection.execute(_counted(), ids)}
    edges = {(row.process_id, row.target): row for row in connection.execute(_edges(), ids)}
    tasks = defaultdict[int, list[TaskFacts]](list)
    lost = defaultdict[int, set[int]](set)
    for row in connection.execute(_unfinished(), ids):
        tasks[row.process_id].append(_task(row, edges.get((row.process_id, row.number))))
        lost[row.process_id].update(row.missing or ())
    decided, open_ = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
    for row in connection.execute(_decisions_astray(), ids):
        if row.lost:
            lost[row.process_id].add(row.number)
        (open_ if row.open else decided)[row.process_id].add(row.number)
    for row in connection.execute(_edges_astray(), ids):
        lost[row.process_id].add(row.number)
    told = defaultdict[int, list[int]](list)
    for row in connection.execute(_told_in_vain(), ids):
        told[row.process_id].append(row.number)
    return [
        _process(
            row,
            counted.get(row.process_id),
            tasks=tuple(tasks[row.process_id]),
            lost=tuple(sorted(lost[row.process_id])),
            lost_decided=tuple(sorted(decided[row.process_id])),
            open=tuple(sorted(open_[row.process_id])),
            told_in_vain=tuple(sorted(told[row.process_id])),
        )
        for row in connection.execute(_processes(), ids)
    ]


def surroundings(connection: Connection, processes: Iterable[ProcessFacts]) -> Surroundings:
    """Of the queues that their tasks wait in."""
    decisions = (task.decision for process in processes for task in process.tasks)
    names = {each.queue for each in decisions if each is not None and each.open}
    began = sa.func.greatest(sa.func.pg_postmaster_start_time(), sa.func.pg_last_xact_replay_timestamp())
    row = connection.execute(sa.select(sa.func.clock_timestamp().label("now"), began.label("up_since"))).one()
    return Surroundings(row.now, row.up_since, _queue_facts(connection, names))


def _queue_facts(connection: Connection, names: set[str]) -> dict[str, QueueFacts]:
    if not names:
        return {}
    wanted = sa.cast(sorted(names), Array(sa.Text))
    rests = sa.and_(_QUEUE.c.rests_why.is_not(None), _QUEUE.c.rests_until > sa.func.now())
    of_queue = sa.select(_QUEUE.c.name, _QUEUE.c.paused, sa.func.coalesce(rests, sa.false()).label("rests"))
    queues = {row.name: row for row in connection.execute(of_queue.where(_QUEUE.c.name == sa.any_(wanted)))}
    of_poll = sa.select(*QUEUE_POLL.c).where(QUEUE_POLL.c.queue == sa.any_(wanted))
    polls = {row.queue: row for row in connection.execute(of_poll)}
    slots = workers.slots(connection)

    def facts(name: str) -> QueueFacts:
        queue, poll = queues.get(name), polls.get(name)
        return QueueFacts(
            slots=slots.get(name, 0),
            polled_at=None if poll is None else poll.polled_at,
            reached=None if poll is None else poll.reached,
            paused=bool(queue and queue.paused),
            rests=bool(queue and queue.rests),
        )

    return {name: facts(name) for name in names}


def _process(row: Row[Any], counted: Row[Any] | None, **lists: tuple[Any, ...]) -> ProcessFacts:
    graph = None
    if row.graph is not None:
        graph = GraphFacts(row.graph_tasks, row.unfinished, row.broken, row.watched)
    counts = Counted()
    if counted is not None:
        counts = Counted(counted.rows, counted.highest, counted.unfinished, counted.broken)
    return ProcessFacts(
        row.process_id,
        None if row.state is None else ProcessState(row.state),
        row.error,
        begun=row.begun,
        ended=row.ended,
        until=row.until,
        deadline_at=row.deadline_at,
        restarts_when_inconsistent=row.when_inconsistent == "restart",
        graph=graph,
        counted=counts,
        valueless=tuple(counted.valueless or ()) if counted is not None else (),
        **lists,
    )


def _task(row: Row[Any], edges: Row[Any] | None) -> TaskFacts:
    decision = None
    if row.decision is not None:
        decision = DecisionFacts(
            DecisionState(row.decision), row.queue, row.placed, row.ready, row.held, row.until, row.deadline_at
        )
    from_edges: Sequence[int] = () if edges is None else edges.numbers or ()
    return TaskFacts(
        row.number,
        row.actor,
        TaskState(row.state),
        row.pending,
        sources=len(from_edges),
        unfinished_sources=0 if edges is None else edges.unfinished,
        without_edge=tuple(sorted(set(row.uses or ()) - set(from_edges))),
        value_of=row.value_of,
        value_state=None if row.value_state is None else TaskState(row.value_state),
        value_edge=None if edges is None else edges.value_edge,
        valued=row.valued,
        told=row.told,
        decision=decision,
    )


def _these(table: sa.Table) -> sa.ColumnElement[bool]:
    return table.c.process_id == sa.any_(_IDS)


def _same(one: Any, other: Any, column: str = "number") -> sa.ColumnElement[bool]:
    return sa.and_(one.c.process_id == other.c.process_id, one.c.number == other.c[column])


@cache
def _processes() -> sa.Select[Any]:
    wanted = sa.func.unnest(_IDS).table_valued(sa.column("id", sa.BigInteger)).render_derived(name="wanted")
    return (
        sa.select(
            wanted.c.id.label("process_id"),
            PROCESS.c.state,
            PROCESS.c.error,
            PROCESS.c.begun_at.is_not(None).label("begun"),
            PROCESS.c.ended_at.is_not(None).label("ended"),
            PROCESS.c.recovery_time.label("until"),
            PROCESS.c.deadline_at,
            PREFERENCES.c.when_inconsistent,
            GRAPH.c.process_id.label("graph"),
            GRAPH.c.tasks.label("graph_tasks"),
            GRAPH.c.unfinished,
            GRAPH.c.broken,
            GRAPH.c.recovery_time.is_not(None).label("watched"),
        )
        .select_from(
            wanted.outerjoin(PROCESS, PROCESS.c.id == wanted.c.id)
            .outerjoin(GRAPH, GRAPH.c.process_id == wanted.c.id)
            .outerjoin(PREFERENCES, PREFERENCES.c.name == PROCESS.c.name)
        )
        .order_by(wanted.c.id)
    )


@cache
def _counted() -> sa.Select[Any]:
    holder = TASK.alias("holder")
    finished = TASK.c.state == _FINISHED
    gone = sa.case((TASK.c.value_of.is_(None), TASK.c.result.is_(None)), else_=holder.c.result.is_(None))
    return (
        sa.select(
            TASK.c.process_id,
            sa.func.count().label("rows"),
            sa.func.max(TASK.c.number).label("highest"),
            sa.func.count().filter(~finished).label("unfinished"),
            sa.func.count().filter(TASK.c.state == _BROKEN).label("broken"),
            sa.func.array_agg(TASK.c.number).filter(sa.and_(finished, gone)).label("valueless"),
        )
        .select_from(TASK.outerjoin(holder, _same(holder, TASK, "value_of")))
        .where(_these(TASK))
        .group_by(TASK.c.process_id)
    )


@cache
def _unfinished() -> sa.Select[Any]:
    value = TASK.alias("value")
    told = sa.exists().where(_same(BROKEN_TASK, TASK)).label("told")
    ready = sa.func.greatest(DECISION.c.due_at, DECISION.c.not_before)
    followed = sa.func.array_remove(array([TASK.c.value_of]), sa.cast(None, sa.Integer))
    named = sa.func.unnest(sa.func.array_cat(TASK.c.uses, followed))
    each = named.table_valued(sa.column("number", sa.Integer)).render_derived(name="named").lateral("named")
    there = TASK.alias("there")
    missing = (
        sa.select(sa.func.array_agg(each.c.number))
        .select_from(each.outerjoin(there, sa.and_(there.c.process_id == TASK.c.process_id, _is(there, each))))
        .where(there.c.number.is_(None))
        .correlate(TASK)
        .scalar_subquery()
    )
    return (
        sa.select(
            *(TASK.c[name] for name in ("process_id", "number", "actor", "state", "pending", "uses", "value_of")),
            TASK.c.result.is_not(None).label("valued"),
            value.c.state.label("value_state"),
            told,
            missing.label("missing"),
            DECISION.c.state.label("decision"),
            DECISION.c.queue,
            (DECISION.c.queue == sa.literal_column(f"'{PREFIX}.'") + TASK.c.actor).label("placed"),
            sa.case((sa.and_(DECISION.c.due_at.is_not(None), sa.func.isfinite(ready)), ready)).label("ready"),
            DECISION.c.pass_key.is_not(None).label("held"),
            sa.case((sa.func.isfinite(DECISION.c.recovery_time), DECISION.c.recovery_time)).label("until"),
            DECISION.c.deadline_at,
        )
        .select_from(TASK.outerjoin(DECISION, _same(DECISION, TASK)).outerjoin(value, _same(value, TASK, "value_of")))
        .where(_these(TASK), TASK.c.state != _FINISHED)
        .order_by(TASK.c.process_id, TASK.c.number)
    )


def _is(there: Any, each: Any) -> sa.ColumnElement[bool]:
    return cast(sa.ColumnElement[bool], there.c.number == each.c.number)


@cache
def _edges() -> sa.Select[Any]:
    """By target, of those that have not finished."""
    source, target = TASK.alias("source"), TASK.alias("target")
    unfinished = sa.or_(source.c.state.is_(None), source.c.state != _FINISHED)
    return (
        sa.select(
            EDGE.c.process_id,
            EDGE.c.target,
            sa.func.array_agg(EDGE.c.source).filter(~EDGE.c.value).label("numbers"),
            sa.func.count().filter(sa.and_(~EDGE.c.value, unfinished)).label("unfinished"),
            sa.func.max(EDGE.c.source).filter(EDGE.c.value).label("value_edge"),
        )
        .select_from(
            EDGE.join(
                target, sa.and_(target.c.process_id == EDGE.c.process_id, target.c.number == EDGE.c.target)
            ).outerjoin(source, sa.and_(source.c.process_id == EDGE.c.process_id, source.c.number == EDGE.c.source))
        )
        .where(_these(EDGE), target.c.state != _FINISHED)
        .group_by(EDGE.c.process_id, EDGE.c.target)
    )


@cache
def _decisions_astray() -> sa.Select[Any]:
    """Without a task, or open though theirs has finished."""
    return (
        sa.select(DECISION.c.process_id, DECISION.c.number, _OPEN.label("open"), TASK.c.number.is_(None).label("lost"))
        .select_from(DECISION.outerjoin(TASK, _same(TASK, DECISION)))
        .where(_these(DECISION), sa.or_(TASK.c.number.is_(None), sa.and_(_OPEN, TASK.c.state == _FINISHED)))
    )


@cache
def _edges_astray() -> sa.Select[Any]:
    """The end of an edge where there is no task."""
    ends = [
        sa.select(EDGE.c.process_id, EDGE.c[end].label("number"))
        .select_from(EDGE.outerjoin(TASK, _same(TASK, EDGE, end)))
        .where(_these(EDGE), TASK.c.number.is_(None))
        for end in ("source", "target")
    ]
    return sa.select(sa.union(*ends).subquery("astray"))


@cache
def _told_in_vain() -> sa.Select[Any]:
    task = sa.exists().where(_same(TASK, BROKEN_TASK), TASK.c.state != _FINISHED)
    return sa.select(BROKEN_TASK.c.process_id, BROKEN_TASK.c.number).where(_these(BROKEN_TASK), ~task)
