"""Working off a queue of jobs: what a worker child does with a ticket.

Claim a batch in a transaction of its own (J2), run the jobs one by one, end each in one statement, claim again; until
nothing is ready or the ticket's time is over. The size of a batch follows the measured time: about half a second of
work, so one job at a time where jobs are slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol

from sqlalchemy.engine import Row

from app import claims, faults, logs, tracing
from app.claims import Claim, Cursor, Lane, PassKey
from app.claims import keeper as keeping
from app.claims.keeper import Holding
from app.claims.saving import save
from app.db import autocommit, transaction
from app.jobs import endings
from app.jobs.current import ThisJob, running
from app.jobs.endings import Done, Failure
from app.jobs.model import Job, Outcome
from app.stopwatch import stopwatch

BATCH_SECONDS = 0.5
BATCH_MOST = 100
TICKET_SECONDS = 5.0
#: How much later than its rate allows a call may begin.
LATE_SECONDS = 0.25
#: Whoever can write to the broker can invent names; what is remembered of them is bounded.
QUEUES_MOST = 1000


class Calls(Protocol):
    """How the tasks of the jobs are called: by the Celery side (`app.calling`)."""

    def batch_size(self, task: str) -> int:
        """How many jobs of this task one call takes; 0: one, in the ordinary way."""
        ...

    def call(self, job: ThisJob, row: Row[Any]) -> Done | Failure: ...

    def call_batch(self, task: str, rows: Sequence[Row[Any]]) -> Failure | None: ...


@dataclass
class Pace:
    """How many jobs of a queue make half a second, by what the last ones took."""

    seconds: float | None = None

    def measured(self, seconds: float, calls: int) -> None:
        each = seconds / max(1, calls)
        self.seconds = each if self.seconds is None else 0.7 * self.seconds + 0.3 * each

    def batch(self, most: int, seconds: float = BATCH_SECONDS) -> int:
        """One until something was measured."""
        return 1 if self.seconds is None else max(1, min(most, int(seconds / max(self.seconds, 1e-6))))


@dataclass
class Runner:
    calls: Calls
    worker: str
    lease: timedelta
    stopping: Callable[[], bool]
    cursors: dict[str, Cursor] = field(default_factory=dict)
    paces: dict[str, Pace] = field(default_factory=dict)

    def serve(self, queue: str, take: int, shards: tuple[int, int] | None = None) -> tuple[int, bool]:  # noqa: ARG002
        """Works off a queue for the time of one ticket; how many jobs it ran, and whether there may be more."""
        if len(self.cursors) > QUEUES_MOST:
            self.cursors.clear()
            self.paces.clear()
        cursor = self.cursors.setdefault(queue, Cursor(Job, queue, Lane.MAIN))
        pace = self.paces.setdefault(queue, Pace())
        end = time.monotonic() + TICKET_SECONDS
        ran, most = 0, BATCH_MOST
        while not self.stopping():
            claim = claims.take(cursor, min(take, pace.batch(most)), worker=self.worker, lease=self.lease)
            if not claim.rows:
                return ran, False
            begun = time.monotonic()
            Batch(self, claim).work()
            pace.measured(time.monotonic() - begun, len(claim.rows))
            most = max(BATCH_MOST, self.calls.batch_size(claim.rows[-1].task))
            ran += len(claim.rows)
            if time.monotonic() > end:
                return ran, True
        return ran, False


class Batch:
    """One claim, from its first call to its last ending."""

    def __init__(self, runner: Runner, claim: Claim) -> None:
        self.runner, self.claim = runner, claim
        self.pass_key: PassKey = claim.pass_key
        self.pace = dict(zip((row.id for row in claim.rows), claim.pace, strict=False))
        self.holding = Holding(Job, claim, runner.lease, self._give_back)

    def work(self) -> None:
        with keeping.keeper.keeping(self.holding):
            try:
                while (row := self.holding.next()) is not None:
                    if self.runner.stopping():
                        self.holding.put_back(row)
                        break
                    if self._late_for_turn(row) or self.runner.stopping():
                        self.holding.put_back(row)
                        break
                    if size := self.runner.calls.batch_size(row.task):
                        self._run_together(row, size)
                    else:
                        self._run(row)
            finally:
                self.holding.let_go()

    def _late_for_turn(self, row: Row[Any]) -> bool:
        """Waits for the moment that the queue's rate has given to this call. Whether it has passed: the calls of others
        that were given to the next ones would meet it."""
        if (turn := self.pace.get(row.id)) is None:
            return False
        wait = self.claim.granted + turn - time.monotonic()
        time.sleep(max(0.0, wait))
        return bool(wait < -LATE_SECONDS)

    def _run(self, row: Row[Any]) -> None:
        if self._expired(row):
            return
        job = ThisJob(row, self.pass_key)
        job.started = time.monotonic()
        job.let_go = lambda: self.holding.ended([row])
        job.take_back = lambda: self.holding.hold_again([row])
        about = logs.about(job_id=row.id, task=row.task, queue=row.queue, attempt=row.attempts)
        with about, tracing.work(Job.NOUN, row.task, row, row.trace, job_id=row.id) as span:
            with running(job):
                faults.reach("run.before_body")
                outcome = self.runner.calls.call(job, row)
                faults.reach("run.after_body")
            _note(row.task, outcome, job.started)
            outcome = _traced(span, row, outcome)
            if not job.ended:
                with tracing.end(row.task):
                    self._end(row, job, outcome)

    def _end(self, row: Row[Any], job: ThisJob, outcome: Done | Failure) -> None:
        self.holding.ended([row])
        if isinstance(outcome, Done):
            self._save([row], lambda tx: bool(endings.done(tx, self.pass_key, [outcome])), within=autocommit)
        else:
            self._fail(row, job.started, outcome)

    def _run_together(self, first: Row[Any], size: int) -> None:
        """Consecutive jobs of a task that takes many at a time."""
        rows = [first]
        while len(rows) < size and (row := self.holding.next()) is not None:
            if row.task != first.task:
                self.holding.put_back(row)
                break
            rows.append(row)
        rows = [row for row in rows if not self._expired(row)]
        if not rows:
            return
        started = time.monotonic()
        with logs.about(job_ids=[row.id for row in rows], task=first.task, queue=first.queue):
            failure = self.runner.calls.call_batch(first.task, rows)
        _note(first.task, failure, started, len(rows))
        self.holding.ended(rows)
        if failure is None:
            ended = [Done(row.id, started) for row in rows]
            self._save(rows, lambda tx: len(endings.done(tx, self.pass_key, ended)) == len(rows), within=autocommit)
        elif len(rows) == 1:
            self._fail(rows[0], started, failure)
        else:
            # One of them is to blame, and nobody knows which: each is tried by itself, at no charge.
            alone = Failure(failure.error, failure.traceback, timedelta(0), Outcome.RETRIED, uncharged=True, alone=True)
            each = failure if failure.uncharged else alone
            self._save(rows, lambda tx: self._fail_each(tx, rows, started, each))

    def _fail_each(self, tx: Any, rows: Sequence[Row[Any]], started: float, failure: Failure) -> bool:
        ours = [endings.failed(tx, self.pass_key, row, started, failure) for row in rows]
        return all(ours)

    def _expired(self, row: Row[Any]) -> bool:
        if row.expires_at is None or row.expires_at > row.claimed_at:
            return False

        def drop(tx: Any) -> bool:
            return bool(endings.leave(tx, [row.id], Outcome.EXPIRED, pass_key=self.pass_key))

        self.holding.ended([row])
        self._save([row], drop)
        return True

    def _fail(self, row: Row[Any], started: float, failure: Failure) -> None:
        self._save([row], lambda session: endings.failed(session, self.pass_key, row, started, failure))

    def _give_back(self, tx: Any, rows: Sequence[Row[Any]]) -> None:
        """What has not begun costs nothing."""
        ids = [row.id for row in rows]
        gone = endings.absorbed(tx, self.pass_key, ids)
        keys = [(each,) for each in ids if each not in gone]
        claims.give_back(tx, Job, self.pass_key, keys, charged=False)
        faults.reach("give_back.before_commit")

    def _save(
        self, rows: Sequence[Row[Any]], write: Callable[[Any], bool], within: Callable[[], Any] = transaction
    ) -> None:
        what = "job " + ", ".join(str(row.id) for row in rows[:10])
        save(self.holding, what, write, within)


def _traced(span: tracing.Off, row: Row[Any], outcome: Done | Failure) -> Done | Failure:
    if isinstance(outcome, Done):
        span.ended(Outcome.DONE.value)
        return outcome
    span.ended((outcome.outcome or Outcome.INTERRUPTED).value, outcome.error)
    if outcome.again is None or span.traceparent is None:
        return outcome
    return replace(outcome, changes={**outcome.changes, "trace": span.again(row.trace)})


def _note(task: str, outcome: Done | Failure | None, started: float, calls: int = 1) -> None:
    word = outcome.outcome if isinstance(outcome, Failure) else Outcome.DONE
    if word is not None:
        stopwatch.worked(Job.NOUN, task, word.value, (time.monotonic() - started) / calls, calls)


def warm_up() -> None:
    """Builds the statements that every job goes through."""
    endings.warm_up()
    for size in claims.SIZES:
        claims.prepared(Job, claims.Form(size=size))
