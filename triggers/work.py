"""Working off a pool: what a worker child does with a ticket for `reactive.<pool>`.

Claim one run, check its trigger again with the values of this moment, which are those that count (T11), call the
function, and end the run in one transaction; then evaluate the task anew (T16), and claim again until nothing waits or
the ticket's time is over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app import claims, faults, logs, tracing
from app.claims import Claim, Cursor, Lane
from app.claims import keeper as keeping
from app.claims.keeper import Holding
from app.claims.saving import save
from app.db import autocommit, transaction
from app.errors import BadRequest, ClaimLost, DatabaseError
from app.jobs.endings import Failure
from app.jobs.model import Outcome
from app.stopwatch import stopwatch
from triggers import endings, launching, values
from triggers.definition import Definition
from triggers.launching import Check
from triggers.model import RUN, TASK, ReactiveTask, RunKind, TaskRun
from triggers.registration import declared
from triggers.run import Run
from triggers.starting import baseline, start_ready

log = logging.getLogger(__name__)

TICKET_SECONDS = 5.0
#: Until a worker that knows the task, or the trigger that it is registered with, may have come.
UNKNOWN = timedelta(seconds=60)
#: Whoever can write to the broker can invent names; what is remembered of them is bounded.
QUEUES_MOST = 1000


class Calls(Protocol):
    """How the function of a run is called: by the Celery side (`app.tasks`)."""

    def call_function(self, work: Any, name: str, args: Sequence[Any]) -> Failure | None: ...


@dataclass
class RunServer:
    calls: Calls
    worker: str
    lease: timedelta
    stopping: Callable[[], bool]
    cursors: dict[str, Cursor] = field(default_factory=dict)

    def serve(self, queue: str, take: int, shards: tuple[int, int] | None = None) -> tuple[int, bool]:  # noqa: ARG002
        if len(self.cursors) > QUEUES_MOST:
            self.cursors.clear()
        cursor = self.cursors.setdefault(queue, Cursor(TaskRun, queue, Lane.MAIN))
        end = time.monotonic() + TICKET_SECONDS
        ran = 0
        while not self.stopping():
            claim = claims.take(cursor, 1, worker=self.worker, lease=self.lease)
            if not claim.rows:
                return ran, False
            if claim.pace and claim.pace[0] > 0:
                # The moment that the pool's rate has given to this start.
                time.sleep(claim.pace[0])
            OneRun(self, claim, claim.rows[0]).work()
            ran += 1
            if time.monotonic() > end:
                return ran, True
        return ran, False


class OneRun:
    """One claim of a run, from its check to its end."""

    def __init__(self, server: RunServer, claim: Claim, row: Row[Any]) -> None:
        self.server, self.row, self.pass_key = server, row, claim.pass_key
        self.id, self.task = row.id, row.task
        self.holding = Holding(TaskRun, claim, server.lease, self._not_begun)

    def work(self) -> None:
        with logs.about(run_id=self.id, task=self.task, queue=self.row.queue, attempt=self.row.attempts):
            self._work()

    def _work(self) -> None:
        with keeping.keeper.keeping(self.holding):
            self.holding.next()
            definition = declared.get(self.task)
            if definition is None:
                log.error("no reactive task %s is declared here: its run waits for a worker that knows it", self.task)
                self._save(self._leave_to_others)
                return
            run = self._check(definition)
            if run is not None:
                self._call(definition, run)
        self._evaluate()

    def _not_begun(self, session: Any, rows: Sequence[Row[Any]]) -> None:
        claims.give_back(session, TaskRun, self.pass_key, [(row.id,) for row in rows], charged=False)

    def _leave_to_others(self, session: Session) -> bool:
        """To a worker of another release."""
        return endings.hand_back(session, self.id, self.task, self.pass_key, UNKNOWN)

    def _check(self, definition: Definition) -> Run | None:
        """The check that counts. None: the run is over."""
        with transaction() as session:
            # First the task, as everybody who locks both.
            task = session.execute(_TASK, {"name": self.task}).one_or_none()
            found = values.read(session, [(self.task, definition.trigger)])
            if task is not None and task.first_run == "baseline" and self.row.kind == RunKind.REGULAR:
                # What has come since its trigger fired is no part of it.
                baseline(session, found, [(self.task, definition.trigger)])
            snapshot = found.snapshot(self.task, definition.trigger)
            verdict = found.check(self.task, definition.trigger)
            drop = self._no_reason(task, definition, fired=verdict.fired)
            check = Check(definition.trigger.to_json(), found.now, verdict.fired, snapshot)
            if drop is not None:
                launching.store(session, self.task, self.id, check)
            elif launching.begin(session, self.row, task.seen_epoch if task else None, check):
                self._begin(session, definition)
            else:
                log.warning("lost the claim on run %s of %s before it began", self.id, self.task)
                return None
        faults.reach("run.checked")
        if drop is not None:
            self._drop(definition, task, drop)
            return None
        return self._run(definition, snapshot)

    def _no_reason(self, task: Row[Any] | None, definition: Definition, *, fired: bool) -> str | None:
        """Why it is not to run any more."""
        if self.row.kind == RunKind.MANUAL:
            return None
        if task is None or task.removed_at is not None or task.paused:
            return "the task was paused or removed while its run waited"
        if not fired and definition.on_lapse == "drop":
            return "its trigger did not hold any more when a worker took it"
        return None

    def _drop(self, definition: Definition, task: Row[Any] | None, why: str) -> None:
        live = task is not None and task.removed_at is None and not task.paused
        if live and task is not None and task.trigger != definition.trigger.to_json():
            # Fired by the trigger of another release: by that it would fire again at once, and lapse here again.
            self._save(self._leave_to_others)
            return
        passing = any(not leaf.needs_seen for leaf in definition.trigger.leaves)
        end = partial(endings.lapsed, why=why, passing=passing)
        self._save(partial(end, run_id=self.id, task=self.task, pass_key=self.pass_key))

    def _begin(self, session: Session, definition: Definition) -> None:
        """A try of the same run is no new start."""
        if self.row.kind == RunKind.REGULAR and definition.min_interval and self.row.started_at is None:
            after = sa.func.clock_timestamp() + definition.min_interval
            session.execute(sa.update(ReactiveTask).where(ReactiveTask.name == self.task).values(start_after=after))

    def _run(self, definition: Definition, snapshot: Any) -> Run:
        windows = values.windows(snapshot)
        if self.row.window_from is not None:
            windows = dict.fromkeys(windows, (self.row.window_from, self.row.window_to))
        run = Run(
            windows,
            id=self.id,
            task=self.task,
            attempt=self.row.attempts,
            queue=self.row.queue,
            manual=self.row.kind == RunKind.MANUAL,
            produces=definition.produces,
        )
        run.attach(partial(self._ending, run), self._still_ours)
        return run

    def _call(self, definition: Definition, run: Run) -> None:
        faults.reach("run.before_body")
        begun = time.monotonic()
        with tracing.work(TaskRun.NOUN, self.task, self.row, run_id=self.id) as span:
            failure = self.server.calls.call_function(run, self.task, [run] if definition.takes_run else [])
            self._note(run, failure, time.monotonic() - begun, span)
        faults.reach("run.after_body")
        if run.ended:
            return
        if run.cancelled is not None:
            self._let_go()
            snapshot = [[*name, None, at and at.isoformat()] for name, (_, at) in run.windows.items()]
            end = partial(endings.cancelled, reason=run.cancelled, snapshot=snapshot)
            self._save(partial(end, run_id=self.id, task=self.task, pass_key=self.pass_key))
        elif failure is None:
            self._finish(run)
        else:
            self._let_go()
            self._save(partial(self._fail, failure))

    def _note(self, run: Run, failure: Failure | None, seconds: float, span: tracing.Off) -> None:
        word = Outcome.DONE if failure is None else failure.outcome
        if run.cancelled is not None:
            word = Outcome.CANCELLED
        span.ended((word or Outcome.INTERRUPTED).value, None if failure is None else failure.error)
        if word is not None:
            stopwatch.worked(TaskRun.NOUN, self.task, word.value, seconds)

    def _let_go(self) -> None:
        self.holding.ended([self.row])

    def _finish(self, run: Run) -> None:
        try:
            self._save(partial(self._done, run))
        except BadRequest as error:
            # What it produced cannot be said to be so: a value that lies behind what is known, or too far ahead.
            failure = Failure(f"{type(error).__name__}: {error}")
            self._let_go()
            self._save(partial(self._fail, failure))

    def _done(self, run: Run, session: Session) -> bool:
        self.holding.hold_again([self.row])
        endings.done(session, self.row, self.pass_key, run.outputs, self._let_go)
        return True

    def _fail(self, failure: Failure, session: Session) -> bool:
        told = endings.told(failure.error, failure.traceback)
        if failure.uncharged or failure.outcome is Outcome.LOST:
            again, charged = failure.again or timedelta(0), not failure.uncharged
            return endings.hand_back(session, self.id, self.task, self.pass_key, again, charged=charged, **told)
        again_in = failure.again
        if (moment := failure.changes.get("not_before")) is not None:
            again_in = max(timedelta(0), moment - datetime.now(UTC))
        ended = endings.failed(session, self.id, self.task, self.pass_key, failure.error, failure.traceback, again_in)
        return ended is not None

    @contextmanager
    def _ending(self, run: Run) -> Iterator[Session]:
        """`run.transaction()`: what the task does in the block is committed with the end of the run, or not at all."""
        try:
            with transaction() as session:
                yield session
                session.flush()
                endings.done(session, self.row, self.pass_key, run.outputs, self._let_go)
                faults.reach("finish.before_commit")
        except BaseException:
            self.holding.hold_again([self.row])
            raise
        run.ended = True
        faults.reach("finish.committed")

    def _still_ours(self) -> None:
        with autocommit() as connection:
            mine = sa.select(RUN.c.id).where(RUN.c.id == self.id, RUN.c.pass_key == self.pass_key)
            if connection.execute(mine).first() is None:
                raise ClaimLost(f"run {self.id} of {self.task} is not ours any more")

    def _save(self, write: Callable[[Session], bool]) -> None:
        save(self.holding, f"run {self.id} of {self.task}", write, patient=True)

    def _evaluate(self) -> None:
        """T16: what moved while it ran must not wait for the next pass."""
        try:
            with transaction() as session:
                start_ready(session, [self.task], "end")
            faults.reach("start.committed")
        except (SQLAlchemyError, DatabaseError) as error:
            log.warning("%s is left to the next evaluation pass: %s", self.task, error)


_TASK: sa.Select[Any] = (
    sa.select(TASK.c.paused, TASK.c.removed_at, TASK.c.seen_epoch, TASK.c.trigger, TASK.c.first_run)
    .where(TASK.c.name == sa.bindparam("name"))
    .with_for_update()
)
