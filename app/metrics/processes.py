"""Processes, their actors, and what recovery does about them and everything else."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import counters
from app.metrics import catalogue
from app.metrics.sample import COUNTED, Sample, counted, named, seconds
from processes.model import PREFERENCES, PROCESS, BrokenTask
from processes.states import ProcessState
from recovery import record
from recovery.operations.model import OPERATION, OperationState

_LIVE = (ProcessState.REGISTERED, ProcessState.ACTIVE, ProcessState.BROKEN)


def read(session: Session) -> Iterator[Sample]:
    one = sa.literal(1)
    of = [
        counted(sa.select(one).where(PROCESS.c.state == sa.literal_column(f"'{state}'")).order_by(PROCESS.c.name))
        for state in _LIVE
    ]
    registered = PROCESS.c.state == sa.literal_column(f"'{ProcessState.REGISTERED}'")
    some = sa.select(PROCESS.c.registered_at).where(registered).order_by(PROCESS.c.name).limit(COUNTED).subquery()
    first = sa.select(sa.func.min(some.c.registered_at)).scalar_subquery()
    age = sa.func.coalesce(seconds(sa.func.now() - first), 0)
    broken_tasks = counted(sa.select(one).select_from(BrokenTask))
    *by_state, broken, oldest = session.execute(sa.select(*of, broken_tasks, age)).one()
    for state, count in zip(_LIVE, by_state, strict=True):
        yield Sample(catalogue.PROCESSES, count, (state.value,))
    yield Sample(catalogue.BROKEN_TASKS, broken)
    yield Sample(catalogue.REGISTERED_AGE, oldest)
    actors = sa.select(PREFERENCES.c.name, PREFERENCES.c.work_timeouts).where(PREFERENCES.c.removed_at.is_(None))
    for name, count in named(session.execute(actors.order_by(PREFERENCES.c.name))):
        yield Sample(catalogue.ACTOR_WORK_TIMEOUTS, count, (name,))
    yield from _counters(session)
    yield from _operations(session)


def _counters(session: Session) -> Iterator[Sample]:
    found = counters.read(session)
    yield Sample(catalogue.WORK_TIMEOUTS, found.get(counters.WORK_TIMEOUT, 0))
    # What has never happened is there with 0: Prometheus sees no growth of a series that begins with 1.
    repairs = dict.fromkeys((record.LOST, record.WORK_TIMEOUT), 0) | counters.named(found, counters.REPAIRED)
    for name, count in named(sorted(repairs.items())):
        yield Sample(catalogue.REPAIRS, count, (name,))


def _operations(session: Session) -> Iterator[Sample]:
    """Few; those that have ended are forgotten after a while."""
    row = OPERATION.c
    paused = row.state == OperationState.PAUSED
    state = sa.case((paused & row.why.is_not(None), "halted"), (paused, "paused"), else_="running")
    query = sa.select(state.label("word"), sa.func.count()).where(row.ended_at.is_(None)).group_by(sa.text("word"))
    counts = {found[0]: found[1] for found in session.execute(query)}
    for word in ("running", "paused", "halted"):
        yield Sample(catalogue.OPERATIONS, counts.get(word, 0), (word,))
