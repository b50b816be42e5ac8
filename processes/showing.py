"""One process, looked at: as a whole, or until it has ended.

Promises:
- Everything that is told of a process is of one moment, however many change it.
- Nothing is locked: looking holds up nobody.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app.clock import Clock, SystemClock
from app.db import engine, keep_to_time, transaction
from app.errors import BadRequest, NotFound
from processes.model import ANSWER, BROKEN_TASK, DECISION, EDGE, GRAPH, PROCESS, TASK, ProcessId
from processes.shown import AnswerShown, BrokenShown, Shown, TaskShown, read_value
from processes.states import DecisionState, ProcessState, TaskState

OVER = (ProcessState.FINISHED, ProcessState.BROKEN, ProcessState.ABORTED)
POLL_SECONDS, POLL_MOST_SECONDS = 0.01, 0.25
_ID_LIMIT = 2**63
COPIES_MOST = 100


@dataclass(frozen=True)
class Ended:
    """How a process ended. A broken one has not quite: its other branches go on, and it may still finish."""

    process_id: ProcessId
    state: ProcessState
    value: Any
    error: str | None
    ended_at: datetime | None


def show(process_id: int) -> Shown:
    """Everything about a process, also what its tasks were called with, and all answers."""
    with one_moment() as session:
        return load(session, process_id)


@contextmanager
def one_moment() -> Iterator[Session]:
    """A transaction in which everything stays as it was when it began."""
    as_it_was = engine().execution_options(isolation_level="REPEATABLE READ")
    with Session(as_it_was, expire_on_commit=False) as session, session.begin():
        keep_to_time(session)
        yield session


@dataclass(frozen=True)
class Part:
    """Of the tasks: `most` behind number `after`, and the first so many that are broken."""

    after: int
    most: int
    broken: int = 0

    def of(self, column: Any, process_id: int) -> Any:
        """Whether the number of a task is among these."""
        number = sa.select(TASK.c.number).where(TASK.c.process_id == process_id, TASK.c.number > self.after)
        broken = sa.select(BROKEN_TASK.c.number).where(BROKEN_TASK.c.process_id == process_id)
        ends = (number.order_by(TASK.c.number).limit(self.most), broken.order_by(sa.text("number")).limit(self.broken))
        return column.in_(sa.union(*(sa.select(each.subquery()) for each in ends)))


def size(session: Session, process_id: int) -> int:
    """How many tasks it has."""
    query = sa.select(GRAPH.c.tasks).where(GRAPH.c.process_id == process_id)
    return session.execute(query).scalar_one_or_none() or 0


def counts(session: Session, process_id: int) -> dict[tuple[TaskState, DecisionState | None], int]:
    """How many of its tasks are in which state, with that of their decisions."""
    same = sa.and_(DECISION.c.process_id == TASK.c.process_id, DECISION.c.number == TASK.c.number)
    states = (TASK.c.state, DECISION.c.state)
    query = sa.select(*states, sa.func.count()).select_from(TASK.outerjoin(DECISION, same))
    rows = session.execute(query.where(TASK.c.process_id == process_id).group_by(*states))
    return {(row[0], row[1]): row[2] for row in rows}


def load(
    session: Session,
    process_id: int,
    *,
    answers: int | None = None,
    text: int | None = None,
    part: Part | None = None,
) -> Shown:
    """`answers`: of each task no more than the latest ones; `text`: no more characters of arguments and values;
    `part`: not all of its tasks. In several statements, which only `one_moment` holds together."""
    _check(process_id)
    row = session.execute(_process(text).where(PROCESS.c.id == process_id)).one_or_none()
    if row is None:
        raise NotFound(f"there is no process {process_id}: 'tidemill process search' finds those that there are")
    of_copies = sa.select(PROCESS.c.id).where(PROCESS.c.copied_from == process_id)
    copies = tuple(session.scalars(of_copies.order_by(PROCESS.c.id).limit(COPIES_MOST)))
    return Shown(**row._mapping, copies=copies, tasks=_tasks(session, process_id, answers, text, part))


def wait(process_id: int, timeout: float | timedelta = 30.0, *, clock: Clock | None = None) -> Ended:
    """Waits until a process has finished, is broken or aborted; `TimeoutError` if it is not by then."""
    _check(process_id)
    clock = clock or SystemClock()
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if type(seconds) not in (int, float) or math.isnan(seconds) or seconds < 0:
        raise BadRequest(f"timeout={timeout!r:.100} must be seconds, or a timedelta, of zero or more")
    end, pause = clock.monotonic() + seconds, POLL_SECONDS
    columns = (PROCESS.c.state, PROCESS.c.error, PROCESS.c.ended_at, _text(PROCESS.c.value).label("result"))
    while True:
        with transaction() as session:
            row = session.execute(sa.select(*columns).where(PROCESS.c.id == process_id)).one_or_none()
        if row is None:
            raise NotFound(f"there is no process {process_id}: 'tidemill process search' finds those that there are")
        if row.state in OVER:
            return Ended(ProcessId(process_id), row.state, read_value(row.result), row.error, row.ended_at)
        if clock.monotonic() >= end:
            raise TimeoutError(f"process {process_id} is still {row.state} after {seconds:g} s")
        clock.sleep(min(pause, max(0.0, end - clock.monotonic())))
        pause = min(pause * 1.5, POLL_MOST_SECONDS)


def _check(process_id: Any) -> None:
    if type(process_id) is not int or not 0 < process_id < _ID_LIMIT:
        raise NotFound(f"there is no process {process_id!r:.100}: ids are whole numbers above 0")


def _text(column: Any, most: int | None = None) -> Any:
    """As the text that it is: what another program has written may be more than Python reads."""
    text = sa.cast(column, sa.Text)
    return text if most is None else sa.func.left(text, most)


def _process(most: int | None) -> sa.Select[Any]:
    names = ("id", "name", "state", "error", "priority", "custom_id", "idempotency_key", "attributes", "copied_from")
    times = ("registered_at", "begun_at", "ended_at", "deadline_at")
    return sa.select(
        *(PROCESS.c[name] for name in (*names, *times)),
        _text(PROCESS.c.arguments, most).label("arguments"),
        _text(PROCESS.c.value, most).label("result"),
        sa.func.now().label("at"),
    )


def _tasks(
    session: Session, process_id: int, answers: int | None, text: int | None, part: Part | None
) -> tuple[TaskShown, ...]:
    def here(column: Any) -> Any:
        return sa.true() if part is None else part.of(column, process_id)

    sources = defaultdict[int, list[int]](list)
    query = sa.select(EDGE.c.source, EDGE.c.target).where(EDGE.c.process_id == process_id, ~EDGE.c.value)
    query = query.where(here(EDGE.c.target))
    for source, target in session.execute(query.order_by(EDGE.c.source)):
        sources[target].append(source)
    names = ("number", "at", "type", "message", "traceback", "fingerprint")
    query = sa.select(*(BROKEN_TASK.c[name] for name in names))
    rows = session.execute(query.where(BROKEN_TASK.c.process_id == process_id, here(BROKEN_TASK.c.number)))
    broken = {row.number: BrokenShown(row.at, row.type, row.message, row.traceback, row.fingerprint) for row in rows}
    told, answered = _answers(session, process_id, answers, here)
    return tuple(
        _task(row, tuple(sources[row.number]), broken.get(row.number), told[row.number], answered.get(row.number, 0))
        for row in session.execute(_with_decisions(process_id, text).where(here(TASK.c.number)))
    )


def _with_decisions(process_id: int, text: int | None) -> sa.Select[Any]:
    of_task = ("number", "actor", "state", "created_at", "created_by", "value_of", "failed", "ready_at", "ended_at")
    of_decision = ("attempts", "failures", "restarts", "epoch", "deadline_at", "claimed_at", "error")
    same = sa.and_(DECISION.c.process_id == TASK.c.process_id, DECISION.c.number == TASK.c.number)
    return (
        sa.select(
            *(TASK.c[name] for name in of_task),
            _text(TASK.c.arguments, text).label("arguments"),
            _text(TASK.c.result, text).label("result"),
            *(DECISION.c[name] for name in of_decision),
            DECISION.c.state.label("decision"),
            DECISION.c.claimed_by.label("worker"),
            DECISION.c.recovery_time.label("until"),
            DECISION.c.ended_at.label("decided_at"),
            sa.func.greatest(DECISION.c.due_at, DECISION.c.not_before).label("due_at"),
        )
        .select_from(TASK.outerjoin(DECISION, same))
        .where(TASK.c.process_id == process_id)
        .order_by(TASK.c.number)
    )


def _task(
    row: Row[Any],
    sources: tuple[int, ...],
    broken: BrokenShown | None,
    answers: Iterable[AnswerShown],
    answered: int,
) -> TaskShown:
    words = dict(row._mapping) | {name: row._mapping[name] or 0 for name in _COUNTS}
    in_work = row.decision == DecisionState.WORK
    waits = row.state == TaskState.READY and row.decision == DecisionState.QUEUED
    words |= {"until": row.until if in_work else None, "due_at": row.due_at if waits else None}
    return TaskShown(**words, sources=sources, broken=broken, answers=tuple(answers), answered=answered)


_COUNTS = ("attempts", "failures", "restarts", "epoch")


def _answers(
    session: Session, process_id: int, most: int | None, here: Callable[[Any], Any]
) -> tuple[defaultdict[int, list[AnswerShown]], dict[int, int]]:
    """By task, the oldest first; and how many there are."""
    query = sa.select(*(ANSWER.c[name] for name in ("id", "number", "at", "worker", "refused", "error", "traceback")))
    query = query.where(ANSWER.c.process_id == process_id, here(ANSWER.c.number))
    if most is not None:
        of_process = sa.select(TASK.c.number).where(TASK.c.process_id == process_id, here(TASK.c.number))
        numbers = of_process.subquery("numbers")
        latest = query.where(ANSWER.c.number == numbers.c.number).order_by(ANSWER.c.id.desc()).limit(most)
        each = latest.correlate(numbers).lateral("latest")
        query = sa.select(*each.c).select_from(numbers.join(each, sa.true()))
    found = query.subquery("found")
    told, totals = defaultdict[int, list[AnswerShown]](list), dict[int, int]()
    for row in session.execute(sa.select(*found.c).order_by(found.c.number, found.c.id)):
        told[row.number].append(AnswerShown(row.at, row.worker, row.refused, row.error, row.traceback))
    counted = sa.select(ANSWER.c.number, sa.func.count()).where(ANSWER.c.process_id == process_id)
    for number, count in session.execute(counted.where(here(ANSWER.c.number)).group_by(ANSWER.c.number)):
        totals[number] = count
    return told, totals
