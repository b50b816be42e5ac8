"""The reactive service in this process, pass by pass, on the database of a test."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import engine
from triggers import polling
from triggers.model import RUN, TASK, ReactiveCursor, RunState
from triggers.service import Report, Service
from triggers.service import service as pacing
from triggers.service.memory import Memory

MOST_PASSES = 200
#: However long a loaded machine takes for it, what is kept is worked out in every pass.
pacing.HOLD_PART, pacing.QUICK_SECONDS = 1e-9, math.inf


@dataclass
class Clock:
    """What the service measures its own pauses by: in every pass, enough time has passed for all that is not urgent."""

    now: float = 0.0

    def __call__(self) -> float:
        self.now += 0.3
        return self.now


@dataclass
class Follower:
    """A service, as the loop drives it."""

    service: Service = field(default_factory=lambda: Service(Clock()))
    reports: list[Report] = field(default_factory=list)

    def once(self, limit: int = 2000) -> Report:
        self.reports.append(self.service.run_once(limit))
        return self.reports[-1]

    def rest(self) -> int:
        """Passes until nothing more happens; how many runs they started."""
        started = 0
        for _ in range(MOST_PASSES):
            report = self.once()
            started += report.started
            quiet = not (report.taken_over or report.fenced or report.more or report.started or report.decided)
            if quiet and not report.moved and not report.read and not self.memory.pending:
                return started
        raise AssertionError(f"the service never came to rest: {self.reports[-1]}")

    @property
    def memory(self) -> Memory:
        found = self.service.memory
        assert found is not None
        return found

    def replace(self) -> None:
        """As after kill -9: another process begins."""
        self.service = Service(Clock())


@contextmanager
def one_snapshot() -> Iterator[Session]:
    with Session(engine().execution_options(isolation_level="REPEATABLE READ")) as session, session.begin():
        yield session


def differing(memory: Memory) -> dict[str, tuple[bool | None, bool | None]]:
    """What memory and the naive evaluator say at the same moment, where they say different things."""
    with one_snapshot() as session:
        naive = dict(polling.truths(session, memory.now))
    known = {name: memory.index.truth(name) for name in memory.tasks}
    names = naive.keys() | known.keys()
    return {name: (known.get(name), naive.get(name)) for name in names if known.get(name) != naive.get(name)}


def launches() -> list[tuple[str, str]]:
    """Of all runs that were checked by a worker: the task, and the windows that it was given."""
    with one_snapshot() as session:
        rows = session.execute(sa.select(RUN.c.task, RUN.c.checked).where(RUN.c.state == RunState.DONE))
        return sorted((row.task, str(row.checked)) for row in rows)


def names() -> set[str]:
    with one_snapshot() as session:
        return set(session.execute(sa.select(TASK.c.name)).scalars())


def cursor_row() -> tuple[str, int]:
    with one_snapshot() as session:
        query = sa.select(sa.cast(ReactiveCursor.snapshot, sa.Text), ReactiveCursor.term)
        snapshot, term = session.execute(query).one()
        return snapshot, term
