"""What holds of the tasks of a process, of who waits for whom, and of their decisions."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from app.claims.model import is_running, is_waiting
from processes.model import BROKEN_TASK, DECISION, EDGE, PREFIX, PROCESS, TASK, Decision
from processes.states import DecisionState, ProcessState, TaskState
from recovery import record
from recovery.findings import Case, Verdict
from recovery.invariants.claims import NEVER, late, newest
from recovery.invariants.entry import BOUND, Invariant, selecting
from recovery.invariants.healed import ABORTED, GOES_ON, LIVE, REGISTERED, of_process

_KEY = (TASK.c.process_id, TASK.c.number)
_FINISHED: sa.ColumnElement[Any] = sa.literal_column(f"'{TaskState.FINISHED}'")
_QUEUED, _WORK = is_waiting(Decision), is_running(Decision)
_WAITS = TASK.c.state.in_([TaskState.PENDING, TaskState.READY])
_FOLLOWS = TASK.c.state == TaskState.FOLLOWS
_source = TASK.alias("source")


def _task(*conditions: Any, of: sa.ColumnElement[bool] = GOES_ON) -> sa.Select[Any]:
    return sa.select(*_KEY).join(PROCESS, PROCESS.c.id == TASK.c.process_id).where(of, *conditions)


def _same(one: Any, other: Any, column: str = "number") -> sa.ColumnElement[bool]:
    return sa.and_(one.c.process_id == other.c.process_id, one.c.number == other.c[column])


def _sources(*conditions: Any) -> Any:
    """How many edges there are to a task."""
    of = sa.select(sa.func.count()).select_from(EDGE.outerjoin(_source, _same(_source, EDGE, "source")))
    of = of.where(EDGE.c.process_id == TASK.c.process_id, EDGE.c.target == TASK.c.number, ~EDGE.c.value, *conditions)
    return of.correlate(TASK).scalar_subquery()


_unfinished_source = sa.or_(_source.c.state.is_(None), _source.c.state != _FINISHED)
_decided = sa.or_(TASK.c.result.is_not(None), TASK.c.value_of.is_not(None))
_made = sa.exists().where(_same(DECISION, TASK), DECISION.c.state == DecisionState.FINISH)
_open = sa.exists().where(_same(DECISION, TASK), DECISION.c.state != DecisionState.FINISH)
_value_edge = (
    sa.exists()
    .where(EDGE.c.process_id == TASK.c.process_id, EDGE.c.target == TASK.c.number, EDGE.c.value)
    .correlate(TASK)
)
_that_edge = (
    sa.exists()
    .where(
        EDGE.c.process_id == TASK.c.process_id,
        EDGE.c.target == TASK.c.number,
        EDGE.c.value,
        EDGE.c.source == TASK.c.value_of,
    )
    .correlate(TASK)
)
_uses = sa.func.unnest(TASK.c.uses).table_valued(sa.column("number", sa.Integer)).render_derived(name="uses")
_unlinked = (
    sa.exists()
    .select_from(_uses)
    .where(
        ~sa.exists()
        .where(
            EDGE.c.process_id == TASK.c.process_id,
            EDGE.c.target == TASK.c.number,
            EDGE.c.source == _uses.c.number,
            ~EDGE.c.value,
        )
        .correlate(TASK, _uses)
    )
    .correlate(TASK)
)
_there = TASK.alias("there")
_gone_use = (
    sa.exists()
    .select_from(_uses)
    .where(
        ~sa.exists()
        .where(_there.c.process_id == TASK.c.process_id, _there.c.number == _uses.c.number)
        .correlate(TASK, _uses)
    )
    .correlate(TASK)
)
_gone_value = sa.and_(TASK.c.value_of.is_not(None), ~sa.exists().where(_same(_there, TASK, "value_of")))
_valueless = sa.and_(
    TASK.c.state == _FINISHED,
    sa.or_(
        sa.and_(TASK.c.value_of.is_(None), TASK.c.result.is_(None)),
        sa.exists().where(_same(_source, TASK, "value_of"), _source.c.result.is_(None)),
    ),
)


def _named() -> sa.Select[Any]:
    """Tasks that other rows of their process name, and that are not there."""
    ends = [
        sa.select(EDGE.c.process_id, EDGE.c[end].label("number"))
        .join(PROCESS, PROCESS.c.id == EDGE.c.process_id)
        .where(GOES_ON, ~sa.exists().where(_same(TASK, EDGE, end)))
        for end in ("source", "target")
    ]
    decided = (
        sa.select(DECISION.c.process_id, DECISION.c.number)
        .join(PROCESS, PROCESS.c.id == DECISION.c.process_id)
        .where(GOES_ON, ~sa.exists().where(_same(TASK, DECISION)))
    )
    return sa.select(
        sa.union(*ends, decided, _task(TASK.c.state != _FINISHED, sa.or_(_gone_use, _gone_value))).subquery()
    )


def _open_of(task: Any, *, live: bool) -> sa.Select[Any]:
    """Open decisions, by the indexes of what waits and of what is in work."""
    found = []
    for open_ in (_QUEUED, _WORK):
        query = sa.select(DECISION.c.process_id, DECISION.c.number).where(open_, task)
        if live:
            query = query.join(PROCESS, PROCESS.c.id == DECISION.c.process_id).where(~REGISTERED)
        found.append(query)
    return sa.select(sa.union_all(*found).subquery("open"))


_no_process = ~sa.exists().where(PROCESS.c.id == DECISION.c.process_id)
_not_ready = sa.exists().where(_same(TASK, DECISION), TASK.c.state != TaskState.READY)
_over = sa.exists().where(
    PROCESS.c.id == DECISION.c.process_id, PROCESS.c.state.in_([ProcessState.FINISHED, ProcessState.ABORTED])
)
_ready = sa.func.greatest(DECISION.c.due_at, DECISION.c.not_before)
_unclaimable = sa.or_(
    DECISION.c.queue != sa.literal(f"{PREFIX}.") + TASK.c.actor,
    DECISION.c.due_at.is_(None),
    _ready == NEVER,
    DECISION.c.pass_key.is_not(None),
    DECISION.c.recovery_time.is_distinct_from(DECISION.c.deadline_at),
)
_endless = sa.or_(DECISION.c.pass_key.is_(None), DECISION.c.recovery_time.is_(None), DECISION.c.recovery_time == NEVER)


def _decisions(state: sa.ColumnElement[bool], wrong: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Of tasks that are ready, of processes that go on."""
    query = sa.select(DECISION.c.process_id, DECISION.c.number).join(TASK, _same(TASK, DECISION))
    return query.join(PROCESS, PROCESS.c.id == DECISION.c.process_id).where(
        state, wrong, GOES_ON, TASK.c.state == TaskState.READY
    )


_told = sa.exists().where(_same(BROKEN_TASK, TASK))
_list = newest(BROKEN_TASK, by=BROKEN_TASK.c.at.desc())
_is_broken = sa.exists().where(_same(TASK, _list), TASK.c.state == TaskState.BROKEN)

OF_TASKS: tuple[Invariant, ...] = (
    of_process("what a task or a decision names is there", Case.TASK_LOST, _named()),
    of_process("a task that has finished has its value", Case.VALUE_LOST, _task(_valueless)),
    of_process(
        "a task waits for what some row says",
        Case.WAITS_FOR_NOTHING,
        _task(
            sa.or_(
                sa.and_(_WAITS, ~_made, TASK.c.pending > _sources(), ~_unlinked),
                sa.and_(_FOLLOWS, TASK.c.value_of.is_(None), ~_value_edge),
            )
        ),
    ),
    of_process("what was decided is applied", Case.DECIDED_NOT_APPLIED, _task(_WAITS, _made, _decided)),
    of_process(
        "a task that is ready is queued",
        Case.NOT_QUEUED,
        _task(TASK.c.state == TaskState.READY, ~_open, ~sa.and_(_made, _decided)),
    ),
    of_process(
        "a task counts what it waits for",
        Case.NOT_ADVANCED,
        _task(_WAITS, TASK.c.pending != _sources(_unfinished_source)),
    ),
    of_process(
        "a task waits exactly while there is something to wait for",
        Case.TOO_EARLY,
        _task(_WAITS, (TASK.c.pending > 0) != (TASK.c.state == TaskState.PENDING)),
    ),
    of_process(
        "a task follows one that has not finished",
        Case.NOT_ADVANCED,
        _task(_FOLLOWS, sa.exists().where(_same(_source, TASK, "value_of"), _source.c.state == _FINISHED)),
    ),
    of_process(
        "what a task uses, and whom it follows, is among its edges",
        Case.EDGE_LOST,
        _task(
            sa.or_(
                sa.and_(_WAITS, _unlinked),
                sa.and_(_FOLLOWS, TASK.c.value_of.is_not(None), ~_that_edge),
                sa.and_(_FOLLOWS, TASK.c.value_of.is_(None), _value_edge),
            )
        ),
    ),
    of_process(
        "only an aborted process has aborted tasks", Case.ENDED_TOO_EARLY, _task(TASK.c.state == TaskState.ABORTED)
    ),
    of_process(
        "an aborted process has only tasks that are over",
        Case.NOT_ABORTED,
        sa.select(*_KEY)
        .join(ABORTED, ABORTED.c.id == TASK.c.process_id)
        .where(TASK.c.state.not_in([TaskState.ABORTED, TaskState.FINISHED])),
        bound=BOUND,
    ),
    of_process("an open decision is that of a process", Case.PROCESS_LOST, _open_of(_no_process, live=False)),
    of_process("an open decision is that of a task that is ready", Case.OPEN_DECISION, _open_of(_not_ready, live=True)),
    of_process("a process that is over has no open decision", Case.OPEN_DECISION, _open_of(_over, live=False)),
    of_process("a decision that waits can be claimed", Case.NOT_CLAIMABLE, _decisions(_QUEUED, _unclaimable)),
    of_process("a decision that is in work has a pass and an end", Case.UNWATCHED_WORK, _decisions(_WORK, _endless)),
    of_process("a broken task is told of", Case.NOT_TOLD, _task(TASK.c.state == TaskState.BROKEN, ~_told, of=LIVE)),
    of_process(
        "what is told of is a broken task",
        Case.TOLD_IN_VAIN,
        sa.select(_list.c.process_id, _list.c.number)
        .join(PROCESS, PROCESS.c.id == _list.c.process_id)
        .where(~_is_broken, ~REGISTERED),
        bound=BOUND,
    ),
    Invariant(
        "an answer that does not come is missed by a sweep",
        record.PROCESS,
        Verdict.DIAGNOSIS,
        "decision_overdue",
        selecting(
            lambda: sa.select(
                sa.union(
                    *(
                        sa.select(DECISION.c.process_id, DECISION.c.number).where(open_, late(DECISION.c.recovery_time))
                        for open_ in (_QUEUED, _WORK)
                    )
                ).subquery()
            )
        ),
        "a scheduler, or beat with a worker for the queue 'control', misses it; else tidemill recover sweep",
    ),
)
