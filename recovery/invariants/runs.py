"""What holds of runs of reactive tasks, and of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.claims import Lane
from app.claims.model import is_waiting
from app.db import transaction
from recovery import record
from recovery.findings import Verdict
from recovery.invariants.claims import Claims, newest, of_claims
from recovery.invariants.entry import BOUND, Done, Invariant, Key, by_keys, selecting
from recovery.invariants.setting import setting
from triggers import endings
from triggers.definition import queue_of
from triggers.leaf_rows import leaf_rows
from triggers.model import LIVE, RUN, TASK, ReactiveLeaf, RunKind, RunState, TaskRun
from triggers.starting import readable, start_ready

RUNS = Claims(TaskRun, "a run", "run", record.RUN, {Lane.MAIN: "due_at"}, asked=False)
_WAITS = is_waiting(TaskRun)
_task = sa.exists().where(TASK.c.name == RUN.c.task)
_pool = sa.literal(queue_of("")) + TASK.c.pool


def _of_task(*conditions: Any) -> sa.ColumnElement[bool]:
    return sa.exists().where(TASK.c.name == RUN.c.task, *conditions)


_misplaced = sa.and_(_WAITS, _of_task(_pool != RUN.c.queue))
_of_none = sa.and_(LIVE, ~_task)
_of_removed = sa.and_(_WAITS, _of_task(TASK.c.removed_at.is_not(None)))
_of_quarantined = sa.and_(LIVE, RUN.c.kind == RunKind.REGULAR, _of_task(TASK.c.quarantined_at.is_not(None)))
_other = TaskRun.__table__.alias("other")
_better = sa.tuple_(_other.c.state == RunState.RUNNING, _other.c.kind == RunKind.MANUAL, -_other.c.id)
_one_of_two = sa.and_(
    LIVE,
    sa.exists().where(
        _other.c.task == RUN.c.task,
        _other.c.id != RUN.c.id,
        _other.c.state.in_([sa.literal_column("'waiting'"), sa.literal_column("'running'")]),
        _better > sa.tuple_(RUN.c.state == RunState.RUNNING, RUN.c.kind == RunKind.MANUAL, -RUN.c.id),
    ),
)
_rows = newest(RUN)


def cancelling(wrong: sa.ColumnElement[bool], why: str, *, running: bool = False) -> Any:
    """Under the lock of the task, as every end of a run; then it is evaluated anew (T16). What works is left to its
    end, unless nobody is there who could have it."""

    def repair(session: Session, keys: Sequence[Key]) -> Done:
        query = sa.select(RUN.c.id, RUN.c.task).where(by_keys([RUN.c.id], keys), wrong).order_by(RUN.c.task, RUN.c.id)
        done = dict[Key, str]()
        tasks = set[str]()
        for row in session.execute(query).all():
            if endings.lock_task(session, row.task, skip_locked=True) is None and endings.exists(session, row.task):
                continue
            still = sa.select(RUN.c.pass_key, RUN.c.state).where(RUN.c.id == row.id, wrong)
            found = session.execute(still).one_or_none()
            if found is None or (found.state == RunState.RUNNING and not running):
                continue
            if endings.cancelled(session, row.id, row.task, found.pass_key, why, None):
                done[(row.id,)] = "cancelled"
                tasks.add(row.task)
        return Done(done, after=_evaluated(tasks))

    return repair


def _evaluated(tasks: Iterable[str]) -> Callable[[], None]:
    def start() -> None:
        with transaction() as session:
            start_ready(session, sorted(tasks), "end")

    return start if tasks else Done().after


def _leaves_again(session: Session, keys: Sequence[Key]) -> Done:
    """From the trigger; a task whose trigger cannot be read starts nothing until somebody looks."""
    done = dict[Key, str]()
    for (name,) in keys:
        row = endings.lock_task(session, name, skip_locked=True)
        if row is None or session.execute(sa.select(TASK.c.id).where(_leafless, TASK.c.name == name)).first() is None:
            continue
        trigger = readable(name, row.trigger)
        if trigger is None:
            endings.quarantine(session, name, "its trigger cannot be read", None)
        else:
            session.execute(sa.insert(ReactiveLeaf), leaf_rows(row.id, trigger))
            endings.move_on(session, name)
        done[(name,)] = "quarantined" if trigger is None else "made again from its trigger"
    return Done(done)


_leafless = sa.and_(TASK.c.quarantined_at.is_(None), ~sa.exists().where(ReactiveLeaf.task_id == TASK.c.id))
_generation = sa.select(TASK.c.generation).where(TASK.c.name == RUN.c.task).scalar_subquery()
_ended = RUN.c.ended_at.is_not(None)


def _run(name: str, verdict: Verdict, finding: str, wrong: sa.ColumnElement[bool], cure: str, repair: Any) -> Invariant:
    return Invariant(name, record.RUN, verdict, finding, selecting(sa.select(RUN.c.id).where(wrong)), cure, repair)


_OVER = [state for state in RunState if state not in (RunState.WAITING, RunState.RUNNING)]

OF_RUNS: tuple[Invariant, ...] = (
    *of_claims(RUNS),
    _run(
        "a task has at most one live run",
        Verdict.REPAIRABLE,
        "run_twice",
        _one_of_two,
        "cancelled, but for one: that which works, was started by hand, or is the oldest",
        cancelling(_one_of_two, "another run of the task is live", running=True),
    ),
    _run(
        "a live run is that of a task",
        Verdict.BROKEN,
        "run_without_task",
        _of_none,
        "cancelled",
        cancelling(_of_none, "there is no such task", running=True),
    ),
    _run(
        "what waits, waits in the pool of its task",
        Verdict.REPAIRABLE,
        "run_misplaced",
        _misplaced,
        "put into the queue of its pool",
        setting(
            RUN,
            _misplaced,
            {"queue": sa.select(_pool).where(TASK.c.name == RUN.c.task).scalar_subquery()},
            "put into its pool",
        ),
    ),
    _run(
        "nothing waits of a task that was removed",
        Verdict.REPAIRABLE,
        "run_of_removed_task",
        _of_removed,
        "cancelled",
        cancelling(_of_removed, "the task is not declared any more"),
    ),
    _run(
        "a task in quarantine starts nothing",
        Verdict.REPAIRABLE,
        "run_of_quarantined_task",
        _of_quarantined,
        "cancelled; while it runs, left to its end",
        cancelling(_of_quarantined, "the task is in quarantine"),
    ),
    _run(
        "a live run has no end",
        Verdict.REPAIRABLE,
        "run_live_with_end",
        sa.and_(LIVE, _ended),
        "the end is taken away",
        setting(RUN, sa.and_(LIVE, _ended), {"ended_at": None}, "taken away"),
    ),
    Invariant(
        "a run that ended says when",
        record.RUN,
        Verdict.REPAIRABLE,
        "run_without_end",
        selecting(sa.select(_rows.c.id).where(_rows.c.state.in_(_OVER), _rows.c.ended_at.is_(None))),
        "set to now",
        setting(RUN, sa.and_(~LIVE, ~_ended), {"ended_at": sa.func.now()}, "set to now"),
        bound=BOUND,
    ),
    Invariant(
        "a run was made by a generation that the task has had",
        record.RUN,
        Verdict.REPAIRABLE,
        "run_of_later_generation",
        selecting(
            sa.select(_rows.c.id).join(TASK, TASK.c.name == _rows.c.task).where(_rows.c.generation > TASK.c.generation)
        ),
        "set to that of the task",
        setting(
            RUN, _of_task(RUN.c.generation > TASK.c.generation), {"generation": _generation}, "set to that of the task"
        ),
        bound=BOUND,
    ),
    Invariant(
        "a run that was done was checked before",
        record.RUN,
        Verdict.BROKEN,
        "run_unchecked",
        selecting(
            sa.select(_rows.c.id).where(
                _rows.c.state == RunState.DONE, sa.or_(_rows.c.checked.is_(None), _rows.c.started_at.is_(None))
            )
        ),
        "nothing: what was done is done; retention forgets it",
        bound=BOUND,
    ),
    Invariant(
        "a task rests on at least one parameter",
        record.RUN,
        Verdict.REPAIRABLE,
        "task_without_leaves",
        selecting(sa.select(TASK.c.name).where(_leafless)),
        "made again from its trigger; where nobody can read it, the task is quarantined",
        _leaves_again,
    ),
)
