"""The reactive service: follows what changed, and looks only at the tasks that it can concern (T18, T19).

Promises:
- The cursor, the runs and the evaluations of a pass are one transaction; memory that a failed one may have touched is
  thrown away, and built anew from Postgres.
- A leader that was frozen while another took over does nothing more: the cursor's term is not its own. One that is
  frozen within a pass does not hold up the others: the server ends its transaction.
- Nothing is started but by `triggers.starting`, which reads again under lock: memory only says where to look. So the
  MVP pass may run beside it, and a wrong memory costs latency, never a wrong run.
- Once a minute memory is compared with an evaluation of everything; what differs is counted, told, and put right.
"""

from __future__ import annotations

import heapq
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import faults
from app.arrays import Array
from app.checks import limited
from app.db import autocommit, engine, transaction
from triggers import missed, polling
from triggers.model import ReactiveCursor, ReactiveTask
from triggers.polling import micros
from triggers.service import cursor, slots
from triggers.service.memory import Memory
from triggers.starting import UNREADABLE, start_ready, startable, take_first

log = logging.getLogger(__name__)

LIMIT = 2000
COMPARE_SECONDS = 60.0
HOLD_SECONDS = 0.25
#: It is done no more than every so many times what it took.
HOLD_PART, QUICK_SECONDS = 20.0, 0.05
#: The cursor of a quiet system is moved now and then, so that retention may follow.
MOVE_SECONDS = 10.0
#: Tasks that another transaction was changing are looked at again this soon.
BUSY_SECONDS = 0.1


@dataclass(frozen=True)
class Report:
    """`moved`: parameters; `read`: tasks read again; `decided`: tasks looked at under lock."""

    tasks: int = 0
    moved: int = 0
    read: int = 0
    decided: int = 0
    started: int = 0
    missed: int = 0
    differences: int = 0
    taken_over: bool = False
    fenced: bool = False
    more: bool = False


class Service:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.memory: Memory | None = None
        self.term = 0
        self._compared = self._held = self._looked = self._moved = -math.inf
        self._hold_pause = HOLD_SECONDS

    def forget(self) -> None:
        """The next pass reads everything anew. For whoever has been without the duty, or without the server: it may
        have lost what was committed last, and give the numbers of its transactions once more."""
        self.memory = None

    def run_once(self, limit: int = LIMIT) -> Report:
        """One pass; looks at no more than `limit` tasks under lock."""
        try:
            if self.memory is None:
                return self._take_over()
            report = Report(len(self.memory.tasks))
            if self._is_due(self.memory):
                report = self._pass(self.memory, limit)
            # At once where something moved, if that is quick: a slot is best kept before another takes it.
            news = self._hold_pause < QUICK_SECONDS * HOLD_PART and (report.read or report.started)
            if news or self._monotonic() - self._held > self._hold_pause:
                self._hold()
            return report
        except BaseException:
            self.memory = None
            raise

    def _take_over(self) -> Report:
        with Session(engine().execution_options(isolation_level="REPEATABLE READ")) as session, session.begin():
            self.term = cursor.take_over(session)
            memory = Memory(cursor.clock(session))
            session.execute(sa.select(sa.func.set_config("cursor_tuple_fraction", "1", True)))
            memory.load(session)
            memory.to_decide()
            faults.reach("service.before_commit")
        faults.reach("service.committed")
        self.memory, self._compared, self._held = memory, self._monotonic(), -math.inf
        self._looked = -math.inf
        log.info("following %s reactive tasks, in term %s", len(memory.tasks), self.term)
        return Report(len(memory.tasks), taken_over=True, more=True)

    def _is_due(self, memory: Memory) -> bool:
        """Idle passes take no lock and write nothing."""
        now = self._monotonic()
        if memory.pending or memory.first or now - self._compared > COMPARE_SECONDS or now - self._moved > MOVE_SECONDS:
            return True
        if memory.busy and now - self._looked > BUSY_SECONDS:
            return True
        with autocommit() as connection:
            return cursor.anything_new(connection, self.term, memory.next_timer)

    def _pass(self, memory: Memory, limit: int) -> Report:
        with transaction() as session:
            row = cursor.lock(session)
            if row is None or row.term != self.term or not row.usable:
                log.warning("another service has taken over, or the cluster is another one: reading everything anew")
                self.memory = None
                return Report(fenced=True)
            changes = cursor.read(session, row.snapshot)
            if changes.too_many:
                self.memory = None
                return Report(more=True)
            memory.apply(changes)
            memory.load(session, changes.tasks)
            report = self._decide(session, memory, limit)
            if changes.any or self._monotonic() - self._moved > MOVE_SECONDS:
                cursor.move(session, changes)
                self._moved = self._monotonic()
            faults.reach("service.before_commit")
        faults.reach("service.committed")
        self._looked = self._monotonic()
        report = replace(report, moved=len(changes.parameters), read=len(changes.tasks))
        if self._monotonic() - self._compared > COMPARE_SECONDS:
            differences = self._compare(memory)
            report = replace(report, differences=differences, more=report.more or bool(memory.pending))
        return report

    def _decide(self, session: Session, memory: Memory, limit: int) -> Report:
        if memory.first:
            asked, memory.first = memory.first, set()
            taken = take_first(session, asked)
            memory.load(session, taken)
            # Somebody else has them locked, if it was not he who took it.
            memory.busy |= asked - taken
        memory.pending |= memory.busy
        memory.busy.clear()
        pending = memory.to_decide()
        names = sorted(pending, key=lambda name: (-memory.tasks[name].priority, name))[:limit]
        started = start_ready(session, names, "service")
        for name in started.runs:
            memory.opened.pop(name, None)
        # Its own writes are not in the streams as this transaction will have seen them.
        memory.load(session, started.changed)
        pending.difference_update(names)
        self._undecided(session, memory, set(names) - started.decided)
        windows = missed.record(session, memory.closed, memory.now)
        memory.closed.clear()
        return Report(
            len(memory.tasks),
            decided=len(names),
            started=len(started.runs),
            missed=windows,
            more=bool(pending),
        )

    @staticmethod
    def _undecided(session: Session, memory: Memory, names: set[str]) -> None:
        """Those that somebody else has locked are looked at again soon, those that rest when their time has come (also
        when the clock was set back, and it is to come once more); what holds the others will end with an event."""
        if not names:
            return
        now = sa.func.clock_timestamp()
        named = ReactiveTask.name == sa.any_(sa.cast(sorted(names), Array(sa.Text)))
        rests = ReactiveTask.start_after > now
        query = sa.select(
            ReactiveTask.name, rests.label("rests"), micros(ReactiveTask.start_after).label("start_after")
        )
        for row in session.execute(query.where(named, sa.or_(startable(now), rests))):
            if row.rests:
                heapq.heappush(memory.resting, (row.start_after, row.name))
            else:
                memory.busy.add(row.name)

    def _hold(self) -> None:
        """By itself: runs that were made or claimed by others are in no stream. It takes as long as there are live
        runs, so it is never done for more than a part of the time."""
        memory, begun = self.memory, time.perf_counter()
        if memory is None or not (memory.producing or memory.holding):
            return
        with transaction() as session:
            term, now = cursor.turn(session)
            if term == self.term:
                slots.renew(session, memory, now)
        self._held = self._monotonic()
        self._hold_pause = max(HOLD_SECONDS, (time.perf_counter() - begun) * HOLD_PART)

    def _compare(self, memory: Memory) -> int:
        """With the naive evaluation of everything, in one snapshot."""
        self._compared = self._monotonic()
        with Session(engine().execution_options(isolation_level="REPEATABLE READ")) as session, session.begin():
            row = cursor.lock(session)
            if row is None or row.term != self.term or not row.usable:
                self.memory = None
                return 0
            changes = cursor.read(session, row.snapshot)
            if changes.too_many:
                self.memory = None
                return 0
            memory.apply(changes)
            memory.load(session, changes.tasks)
            # What flipped by these changes must be decided, though no change is left that would say so.
            memory.to_decide()
            session.execute(sa.select(sa.func.set_config("cursor_tuple_fraction", "1", True)))
            differing = _differing(session, memory)
            if differing:
                log.error("memory differed from an evaluation of everything in %s", ", ".join(sorted(differing)[:10]))
                # All of it: what is wrong may be a value that many tasks rest on.
                self.memory = None
            counted = {"compared_at": sa.func.now(), "differences": ReactiveCursor.differences + len(differing)}
            session.execute(sa.update(ReactiveCursor).values(**counted))
            cursor.move(session, changes)
        return len(differing)


def _differing(session: Session, memory: Memory) -> set[str]:
    """The tasks of which memory and the naive evaluation say different things, or which only one of them knows."""
    try:
        naive = dict(polling.truths(session, memory.now))
    except UNREADABLE as error:
        log.warning("memory was not compared, a newer release has stored what this one cannot read: %s", error)
        return set()
    known = {name: memory.index.truth(name) for name in memory.tasks}
    names = (naive.keys() | known.keys()) - memory.unreadable
    return {name for name in names if naive.get(name) != known.get(name)}


own = Service()


@limited
def run_once(limit: int = LIMIT) -> Report:
    """One pass of this process's service; the first one takes over."""
    return own.run_once(limit)
