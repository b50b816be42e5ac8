"""What holds of processes and of what their graphs count."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from processes.model import GRAPH, PROCESS, TASK
from processes.states import ProcessState, TaskState
from recovery import record
from recovery.diagnose import INCONSISTENT, TIMEOUT
from recovery.findings import Case, Verdict
from recovery.invariants.claims import NEVER, late, newest
from recovery.invariants.entry import BOUND, Invariant, Repair, selecting
from recovery.invariants.healed import ENDED, FINISHED, GOES_ON, LIVE, OVER, REGISTERED, has_graph, of_process
from recovery.invariants.setting import setting

_ID = PROCESS.c.id
_OF_GRAPH = GRAPH.c.process_id == _ID


def _tasks(process: Any, *conditions: Any) -> sa.ColumnElement[bool]:
    return sa.exists().where(TASK.c.process_id == process.c.id, *conditions)


def _count(*conditions: Any) -> Any:
    count = sa.select(sa.func.count()).select_from(TASK).where(TASK.c.process_id == GRAPH.c.process_id, *conditions)
    return count.correlate(GRAPH).scalar_subquery()


_LEFT, _BROKEN = TASK.c.state != TaskState.FINISHED, TASK.c.state == TaskState.BROKEN
_highest = (
    sa.select(sa.func.max(TASK.c.number)).where(TASK.c.process_id == GRAPH.c.process_id).correlate(GRAPH)
).scalar_subquery()


def _graphs(*conditions: Any) -> sa.Select[Any]:
    """Of processes that go on."""
    return sa.select(_ID).join(GRAPH, _OF_GRAPH).where(GOES_ON, *conditions)


_error = sa.func.coalesce(PROCESS.c.error, "")
_for_nothing = sa.and_(
    PROCESS.c.state == ProcessState.BROKEN,
    ~_tasks(PROCESS, _BROKEN),
    _tasks(PROCESS, _LEFT),
    ~_error.startswith(INCONSISTENT),
    ~_error.startswith(TIMEOUT),
    sa.or_(PROCESS.c.deadline_at.is_(None), PROCESS.c.deadline_at > sa.func.now()),
)
_unwatched = sa.and_(
    LIVE,
    _tasks(PROCESS, _LEFT),
    sa.or_(
        sa.exists().where(_OF_GRAPH, GRAPH.c.recovery_time.is_(None)),
        sa.and_(
            PROCESS.c.state == ProcessState.ACTIVE,
            PROCESS.c.recovery_time.is_(None),
            PROCESS.c.deadline_at.is_not(None),
        ),
    ),
)
_early = sa.and_(
    LIVE,
    PROCESS.c.recovery_time <= sa.func.now(),
    sa.or_(PROCESS.c.deadline_at.is_(None), PROCESS.c.deadline_at > sa.func.now()),
    _tasks(PROCESS, _LEFT),
)
_still_watched = (
    sa.select(_ID)
    .where(ENDED, PROCESS.c.recovery_time.is_not(None))
    .union(sa.select(_ID).join(GRAPH, _OF_GRAPH).where(ENDED, GRAPH.c.recovery_time.is_not(None)))
)
_wrong_end = (
    sa.select(_ID)
    .where(sa.or_(LIVE, REGISTERED), PROCESS.c.ended_at.is_not(None))
    .union_all(sa.select(OVER.c.id).where(OVER.c.ended_at.is_(None)))
)
_without_begin = sa.and_(LIVE, PROCESS.c.begun_at.is_(None))
_orphaned = ~sa.exists().where(GRAPH.c.process_id == _ID)
_graph_rows, _task_rows = newest(GRAPH), newest(TASK)


def _own(name: str, finding: str, table: sa.Table, wrong: Any, cure: str, values: Any) -> Invariant:
    query = sa.select(*table.primary_key.columns).where(wrong)
    repair: Repair = setting(table, wrong, values, cure)
    return Invariant(name, record.PROCESS, Verdict.REPAIRABLE, finding, selecting(query), cure, repair)


def _left_of(rows: Any) -> sa.Select[Any]:
    return sa.select(rows.c.process_id).where(~sa.exists().where(rows.c.process_id == _ID))


def _diagnosis(name: str, finding: str, query: Any, cure: str, *, harmless: bool = False) -> Invariant:
    verdict = Verdict.HARMLESS if harmless else Verdict.DIAGNOSIS
    bound = BOUND if harmless else None
    return Invariant(name, record.PROCESS, verdict, finding, selecting(query), cure, bound=bound)


OF_PROCESSES: tuple[Invariant, ...] = (
    # First these: nothing else of a process is looked at while its time never comes.
    _own(
        "the time at which a process is looked at comes",
        "process_endless",
        PROCESS,
        PROCESS.c.recovery_time == NEVER,
        "looked at now",
        {"recovery_time": sa.case((ENDED, None), (REGISTERED, sa.func.now()), else_=PROCESS.c.deadline_at)},
    ),
    _own(
        "the time at which a graph is looked at comes",
        "graph_endless",
        GRAPH,
        GRAPH.c.recovery_time == NEVER,
        "looked at now",
        {"recovery_time": sa.func.now()},
    ),
    _own(
        "a process that goes on says when it began",
        "process_without_begin",
        PROCESS,
        _without_begin,
        "set to when it was registered",
        {"begun_at": PROCESS.c.registered_at},
    ),
    of_process(
        "a process that is registered is looked at",
        Case.NEVER_BEGUN,
        sa.select(_ID).where(REGISTERED, PROCESS.c.recovery_time.is_(None)),
    ),
    of_process(
        "a process that goes on has a graph", Case.GRAPH_LOST, sa.select(_ID).where(GOES_ON, ~has_graph(PROCESS))
    ),
    of_process(
        "a process that has finished has a graph",
        Case.GRAPH_LOST,
        sa.select(FINISHED.c.id).where(~has_graph(FINISHED)),
        bound=BOUND,
    ),
    of_process(
        "a graph that is looked at is that of a process",
        Case.PROCESS_LOST,
        sa.select(GRAPH.c.process_id).where(GRAPH.c.recovery_time.is_not(None), _orphaned),
    ),
    of_process(
        "a graph that nothing has come of has its first task",
        Case.NO_START_TASK,
        _graphs(~_tasks(PROCESS), GRAPH.c.tasks <= 1),
    ),
    of_process("a graph that has grown has tasks", Case.TASK_LOST, _graphs(~_tasks(PROCESS), GRAPH.c.tasks > 1)),
    of_process("a graph counts its tasks", Case.WRONG_COUNTS, _graphs(GRAPH.c.unfinished != _count(_LEFT))),
    of_process("a graph counts its broken tasks", Case.WRONG_COUNTS, _graphs(GRAPH.c.broken != _count(_BROKEN))),
    of_process("a graph knows the highest number of a task", Case.WRONG_COUNTS, _graphs(GRAPH.c.tasks < _highest)),
    of_process(
        "the graph of a process that has finished counts nothing",
        Case.WRONG_COUNTS,
        sa.select(FINISHED.c.id)
        .join(GRAPH, GRAPH.c.process_id == FINISHED.c.id)
        .where(sa.or_(GRAPH.c.unfinished != 0, GRAPH.c.broken != 0)),
        bound=BOUND,
    ),
    of_process(
        "a process has finished when its tasks have",
        Case.ALL_DONE,
        sa.select(_ID).where(GOES_ON, _tasks(PROCESS), ~_tasks(PROCESS, _LEFT)),
    ),
    of_process(
        "a process that has finished has no task left",
        Case.ENDED_TOO_EARLY,
        sa.select(FINISHED.c.id).where(_tasks(FINISHED, _LEFT)),
        bound=BOUND,
    ),
    of_process(
        "a process with a broken task is broken",
        Case.NOT_BROKEN,
        sa.select(_ID).where(LIVE, PROCESS.c.state == ProcessState.ACTIVE, _tasks(PROCESS, _BROKEN)),
    ),
    of_process("a broken process has a broken task", Case.BROKEN_FOR_NOTHING, sa.select(_ID).where(LIVE, _for_nothing)),
    of_process("a process has an end exactly when it is over", Case.WRONG_END, _wrong_end, bound=BOUND),
    of_process("a process that goes on is looked at", Case.WRONG_CLOCK, sa.select(_ID).where(_unwatched)),
    of_process("a process is looked at when its time is over", Case.WRONG_CLOCK, sa.select(_ID).where(_early)),
    of_process("a process that is over is looked at by nobody", Case.WRONG_CLOCK, _still_watched),
    _diagnosis(
        "what is overdue is looked at by a sweep",
        "process_overdue",
        lambda: sa.select(
            sa.union(
                sa.select(_ID).where(late(PROCESS.c.recovery_time)),
                sa.select(GRAPH.c.process_id).where(late(GRAPH.c.recovery_time)),
            ).subquery()
        ),
        "a scheduler, or beat with a worker for the queue 'control', looks at it; else tidemill recover sweep",
    ),
    _diagnosis(
        "no process is broken",
        "process_broken",
        sa.select(_ID).where(LIVE, PROCESS.c.state == ProcessState.BROKEN),
        "an operator: tidemill process show, tidemill process restart",
    ),
    _diagnosis(
        "what is left of a process has a process",
        "process_orphans",
        _left_of(_graph_rows).union(_left_of(_task_rows)),
        "nobody: it is looked at by nothing, and claimed by nobody",
        harmless=True,
    ),
)
