"""One claim of decisions: the functions are called one by one, and what they answer is accepted together.

Each task has a decision and an outcome of its own: one that fails, or whose answer cannot be saved, costs no other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from app import claims, faults, logs, tracing
from app.alarm import OutOfTime
from app.claims import Claim
from app.claims import keeper as keeping
from app.claims.keeper import Holding
from app.claims.saving import save
from app.db import autocommit, engine, transaction
from app.errors import ClaimLost, DatabaseError, TooLarge, Unavailable
from app.jobs.endings import Failure as CallFailed
from app.jobs.model import Outcome
from app.jobs.run import LATE_SECONDS
from app.stopwatch import stopwatch
from app.words import span
from processes import accepting, arguments, loading, timeouts
from processes.answers import TASK_TIMEOUT, Again, Answer, Break, Failed, Handed, Refuse, Value, failure
from processes.current import ThisTask, running
from processes.definition import Definition
from processes.flow import check_arguments
from processes.loading import Input
from processes.model import DECISION, Decision, Key
from processes.statements import NOW

log = logging.getLogger(__name__)

#: How long an answer may wait for those that come after it.
ACCEPT_SECONDS = 0.1
#: A call that would have less time than this is not begun.
LEAST_SECONDS = 0.02
#: Between two looks at whether a claim is still held. Work that has less time is ended by its limit, which counts.
HELD_LEAST = timedelta(seconds=2)


class Calls(Protocol):
    """How functions are called: by the Celery side (`app.calling`)."""

    def call_for_value(
        self, work: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any], limit: float | None
    ) -> tuple[CallFailed | None, Any]: ...

    def consumes(self, queue: str) -> bool:
        """Whether tickets for this queue come to this worker."""
        ...


@contextmanager
def saving() -> Iterator[Connection]:
    """A transaction for statements that are prepared."""
    with engine().begin() as connection:
        yield connection


class Batch:
    def __init__(
        self,
        calls: Calls,
        stopping: Callable[[], bool],
        definition: Definition,
        claim: Claim,
        work_timeout: timedelta,
    ) -> None:
        self.calls, self.stopping, self.definition, self.claim = calls, stopping, definition, claim
        self.work_timeout = work_timeout
        self.holding = _Holding(self, claim)
        #: On the monotonic clock, after the claim was made.
        self.begun = time.monotonic()
        self.turns = {_key(row): turn for row, turn in zip(claim.rows, claim.pace, strict=False)}
        self.inputs: dict[Key, Input] = {}
        #: That wait to be accepted, which the keeper's thread does as well; behind the lock.
        self.answers: list[tuple[Answer, Row[Any]]] = []
        self._lock, self._accepting = threading.Lock(), threading.Lock()
        #: What is called now, and what was found to be somebody else's.
        self.called: Key | None = None
        #: Of the calls that are to be accepted next.
        self.traces: list[str] = []
        self.lost: set[Key] = set()
        #: On the monotonic clock.
        self.first_answer = 0.0
        #: How many tasks became ready, by their actors.
        self.ready: Counter[str] = Counter()

    def work(self) -> None:
        self.holding.prepare()
        with keeping.keeper.keeping(self.holding):
            try:
                with autocommit() as connection:
                    self.inputs = loading.load(connection, [_key(row) for row in self.claim.rows])
                self.holding.begin()
                while (row := self.holding.next()) is not None:
                    if self.stopping() or self._late_for_turn(row):
                        self.holding.put_back(row)
                        break
                    self._work(row)
                    if self.answers and time.monotonic() - self.first_answer > ACCEPT_SECONDS:
                        self._accept()
            finally:
                self._accept()
                self.holding.let_go()

    def _late_for_turn(self, row: Row[Any]) -> bool:
        """Waits for the moment that the queue's rate has given to this call; what is ready is not kept waiting."""
        if (turn := self.turns.get(_key(row))) is None:
            return False
        wait = self.claim.granted + turn - time.monotonic()
        if wait > ACCEPT_SECONDS:
            self._accept()
        time.sleep(max(0.0, wait))
        return bool(wait < -LATE_SECONDS)

    def _work(self, row: Row[Any]) -> None:
        words = {"actor": self.definition.name, "task": self.definition.task, "queue": row.queue}
        with logs.about(process_id=row.process_id, task_number=row.number, attempt=row.attempts, **words):
            self._work_on(row)

    def _work_on(self, row: Row[Any]) -> None:
        given = self.inputs.get(_key(row))
        made_at = None if given is None else given.created_at
        handed = Handed(row.process_id, row.number, row.epoch, self.claim.pass_key, row.claimed_by, made_at)
        if handed.key in self.lost:
            self.holding.ended([row])
        elif given is None:
            # Its task is gone: the sweep says so.
            self.holding.ended([row])
            log.error("%s is handed out, and has no task", _told([row]))
        elif row.deadline_at is not None and row.deadline_at <= row.claimed_at:
            told = "it was not handed out within its task_timeout"
            self._answer(row, Answer(handed, Failed((TASK_TIMEOUT, "Exception"), told, final=True), by_time=True))
        elif given.too_large is not None:
            self._answer(row, Answer(handed, failure(TooLarge(given.too_large))))
        else:
            faults.reach("task.before_body")
            self.called = handed.key
            try:
                self._call(row, handed, given)
            finally:
                self.called = None

    def _call(self, row: Row[Any], handed: Handed, given: Input) -> None:
        limit = self.claim.asked + self.work_timeout.total_seconds() - time.monotonic()
        if row.force_at is not None:
            # Counted from after the claim: it must not end before that moment has come.
            left = (row.force_at - row.claimed_at).total_seconds() - (time.monotonic() - self.begun)
            limit = min(limit, left + LEAST_SECONDS)
        if limit < LEAST_SECONDS:
            self._out_of_time(row, handed)
            return
        task = ThisTask(handed, given.actor, row.queue, row.attempts, given.created_at)
        task.beat = lambda: self._heartbeat(handed)
        try:
            flow, args, kwargs = self._arguments(handed, given)
        except (ValueError, RecursionError, KeyError) as error:
            self._answer(row, Answer(handed, failure(error)))
            return
        begun, ids = time.monotonic(), {"process_id": row.process_id, "task_number": row.number}
        with tracing.work(Decision.NOUN, self.definition.task, row, given.trace, **ids) as span, running(task):
            failed, value = self.calls.call_for_value(task, self.definition.task, args, kwargs, limit)
            word = Outcome.DONE if failed is None else failed.outcome
            span.ended((word or Outcome.INTERRUPTED).value, None if failed is None else failed.error)
        if span.traceparent is not None:
            self.traces.append(span.traceparent)
        if word is not None:
            stopwatch.worked(Decision.NOUN, self.definition.task, word.value, time.monotonic() - begun)
        faults.reach("task.after_body")
        if failed is not None:
            self._failed(row, handed, failed)
            return
        try:
            outcome = _outcome(self.definition, flow, value)
        except Exception as error:  # noqa: BLE001 - whatever a value's own methods raise
            self._answer(row, Answer(handed, failure(error)))
        else:
            self._answer(row, Answer(handed, outcome))

    def _arguments(self, handed: Handed, given: Input) -> tuple[Any, list[Any], dict[str, Any]]:
        if not self.definition.decider:
            args, kwargs = given.call()
            check_arguments(self.definition, args, kwargs)
            return None, args, kwargs
        flow, args, kwargs = given.decide(handed.process_id)
        # It may have been asked for by a program that does not know it, or of another release.
        check_arguments(self.definition, args, kwargs)
        return flow, [flow, *args], kwargs

    def _failed(self, row: Row[Any], handed: Handed, failed: CallFailed) -> None:
        if isinstance(failed.raised, OutOfTime):
            self._out_of_time(row, handed)
        elif failed.uncharged or failed.outcome is Outcome.LOST:
            # The worker is stopped, does not know the task, or has lost it.
            self._hand_back(row, failed.again)
        elif failed.raised is not None:
            self._answer(row, Answer(handed, failure(failed.raised)))
        else:
            self._answer(row, Answer(handed, Failed(("Error", "Exception"), failed.error, failed.traceback)))

    def _answer(self, row: Row[Any], answer: Answer) -> None:
        with self._lock:
            if not self.answers:
                self.first_answer = time.monotonic()
            self.answers.append((answer, row))

    def _out_of_time(self, row: Row[Any], handed: Handed) -> None:
        def write(connection: Connection) -> bool:
            self._note(timeouts.give_up(connection, handed).ready)
            return True

        self._accept()
        self.holding.ended([row])
        save(self.holding, _told([row]), write, saving)

    def _hand_back(self, row: Row[Any], wait: timedelta | None) -> None:
        self.holding.ended([row])
        try:
            with autocommit() as connection:
                delay = wait or None
                claims.give_back(connection, Decision, self.claim.pass_key, [_key(row)], charged=False, delay=delay)
        except (SQLAlchemyError, DatabaseError) as error:
            log.warning("could not hand back %s: %s", _told([row]), error)

    def _give_back(self, tx: Any, rows: Sequence[Row[Any]]) -> None:
        claims.give_back(tx, Decision, self.claim.pass_key, [_key(row) for row in rows], charged=False)
        faults.reach("give_back.before_commit")

    def _accept(self) -> None:
        """Everything that was answered since the last time; one by one where it cannot be saved together."""
        with self._accepting:
            self._accept_all(self._answered())

    def _answered(self) -> list[tuple[Answer, Row[Any]]]:
        with self._lock:
            answered, self.answers = self.answers, []
        return answered

    def _accept_all(self, answered: Sequence[tuple[Answer, Row[Any]]]) -> None:
        if not answered:
            return
        self.holding.ended([row for _, row in answered])
        try:
            self._save(answered, saving)
        except Exception as error:  # noqa: BLE001 - whatever one of the answers makes of it
            if len(answered) == 1 and not isinstance(error, Unavailable | OperationalError | IntegrityError):
                self._refuse(*answered[0], error)
                return
            log.warning("answers of %s are accepted one by one: %s", answered[0][1].queue, error)
            for answer, row in answered:
                self._accept_one(answer, row)

    def accept_meanwhile(self, within: Callable[[], Any]) -> None:
        """While a call takes long: what was done before it must not wait for its end. In the keeper's thread."""
        with self._accepting:
            if not (answered := self._answered()):
                return
            try:
                accepted = self._save(answered, within)
            except Exception as error:  # noqa: BLE001 - left to the end of the batch, which knows what to do
                log.warning("answers of %s are accepted later: %s", answered[0][1].queue, error)
                with self._lock:
                    self.answers = answered + self.answers
            else:
                self.holding.ended([row for _, row in answered])
                accepting.ring(accepted.ready)

    def _save(self, answered: Sequence[tuple[Answer, Row[Any]]], within: Callable[[], Any]) -> accepting.Accepted:
        traces, self.traces = self.traces, []
        with tracing.end(self.definition.task, traces), within() as connection:
            accepted = accepting.accept(connection, [answer for answer, _ in answered])
            faults.reach("finish.before_commit")
        faults.reach("finish.committed")
        if within is saving:
            self.ready.update(accepted.ready)
        _say(answered, accepted)
        return accepted

    def _accept_one(self, answer: Answer, row: Row[Any]) -> None:
        """Tried for as long as there is time for it: the database may be away."""

        def write(connection: Connection) -> bool:
            made[:] = [accepting.accept(connection, [answer])]
            return True

        made: list[accepting.Accepted] = []
        try:
            saved = save(self.holding, _told([row]), write, saving)
        except Exception as error:  # noqa: BLE001 - whatever the answer makes of it
            self._refuse(answer, row, error)
            return
        if saved:
            self.ready.update(made[0].ready)
            _say([(answer, row)], made[0])
        else:
            self._refuse(answer, row, RuntimeError("the database did not take it"))

    def _refuse(self, answer: Answer, row: Row[Any], error: Exception) -> None:
        """What cannot be saved is a failure of its task."""
        log.error("the answer of %s cannot be saved: %s", _told([row]), error)
        why = failure(ValueError(f"the answer cannot be saved: {getattr(error, 'orig', None) or error}"))
        try:
            self._save([(Answer(answer.handed, why), row)], saving)
        except (SQLAlchemyError, DatabaseError) as again:
            log.warning("the failure of %s cannot be saved, it lapses: %s", _told([row]), again)

    def _note(self, ready: Sequence[str]) -> None:
        self.ready.update(dict.fromkeys(ready, 1))

    def _heartbeat(self, handed: Handed) -> None:
        with autocommit() as connection:
            if not heartbeat(connection, handed, self.work_timeout):
                raise ClaimLost(f"task {handed.number} of process {handed.process_id} was taken back")


def heartbeat(connection: Connection, handed: Handed, work_timeout: timedelta) -> datetime | None:
    """Until when it is to be answered now; None: it is somebody else's."""
    until = sa.func.least(NOW + work_timeout, DECISION.c.force_at)
    mine = (
        DECISION.c.process_id == handed.process_id,
        DECISION.c.number == handed.number,
        DECISION.c.pass_key == handed.pass_key,
        DECISION.c.recovery_time > NOW,
    )
    moved = sa.update(DECISION).where(*mine).values(recovery_time=until).returning(DECISION.c.recovery_time)
    return connection.execute(moved).scalar_one_or_none()


class _Holding(Holding):
    """P3: only a heartbeat moves the end of a hand-out on; the keeper finds out what was lost, and accepts what was
    answered while a call takes long."""

    def __init__(self, batch: Batch, claim: Claim) -> None:
        lease = max(batch.work_timeout, HELD_LEAST)
        super().__init__(Decision, claim, lease, batch._give_back, self._look)
        self._batch = batch

    def _look(self, executor: Any, pass_key: Any, keys: Sequence[Any], lease: timedelta) -> set[Any]:  # noqa: ARG002
        mine = Decision.pass_key == pass_key
        query = sa.select(*claims.key_columns(Decision)).where(claims.among(Decision, keys), mine)
        held = {claims.key_of(Decision, row) for row in executor.execute(query)}
        # One that was lost stops its own call, and no other.
        gone = set(keys) - held - {self._batch.called}
        self._batch.lost |= gone
        return held | gone

    def let_go(self, within: Callable[[], AbstractContextManager[Any]] = transaction) -> None:
        super().let_go(within)
        if within is not transaction:
            self._batch.accept_meanwhile(within)


def _outcome(definition: Definition, flow: Any, value: Any) -> Value:
    if flow is not None:
        number = flow.number_of_value(value)
        text = None if number is not None else arguments.written(definition.name, value)
        return Value(text, tuple(flow.planned), number)
    return Value(arguments.written(definition.name, value))


def _say(answered: Sequence[tuple[Answer, Row[Any]]], accepted: accepting.Accepted) -> None:
    for (answer, row), judgement in zip(answered, accepted.judgements, strict=True):
        outcome = answer.outcome
        told = outcome.told if isinstance(outcome, Failed) else "its decision cannot be accepted"
        match judgement:
            case Again(wait):
                log.warning("%s is tried again in %s: %s", _told([row]), span(wait), told)
            case Break():
                log.error("%s is broken: %s", _told([row]), told)
            case Refuse(why):
                log.warning("the answer of %s was refused: %s", _told([row]), why)
            case _:
                pass


def _key(row: Row[Any]) -> tuple[int, int]:
    return row.process_id, row.number


def _told(rows: Sequence[Row[Any]]) -> str:
    shown = ", ".join(f"{row.process_id}/{row.number}" for row in rows[:10])
    return f"{rows[0].queue} {shown}" + (f" and {len(rows) - 10} more" if len(rows) > 10 else "")
