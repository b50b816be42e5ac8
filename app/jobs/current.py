"""`this_job()`: what a task may know and ask about the job that it runs for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from app import db, faults
from app.claims import PassKey
from app.errors import ClaimLost, TidemillError
from app.jobs import endings
from app.jobs.model import JobId


def idempotency_key(job_id: int, enqueued_at: datetime) -> str:
    return f"{job_id}-{int(enqueued_at.timestamp() * 1_000_000):x}"


class ThisJob:
    """The job that runs in this process now."""

    def __init__(self, row: Any, pass_key: PassKey) -> None:
        self._row, self._pass_key = row, pass_key
        self.ended = False
        self.started = 0.0
        self.restart_limits: Any = None
        self.let_go: Any = None
        self.take_back: Any = None

    @property
    def id(self) -> JobId:
        return JobId(self._row.id)

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return int(self._row.attempts)

    @property
    def max_attempts(self) -> int:
        return int(self._row.max_attempts)

    @property
    def queue(self) -> str:
        return str(self._row.queue)

    @property
    def key(self) -> str | None:
        return self._row.key  # type: ignore[no-any-return]

    @property
    def enqueued_at(self) -> datetime:
        return self._row.enqueued_at  # type: ignore[no-any-return]

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this job, and never that of another: an id alone comes again after a restored
        backup."""
        return idempotency_key(self._row.id, self._row.enqueued_at)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Commits what is done in the block only if the claim still holds, together with the end of the job.

        Once a job: after it the job has ended, whatever the task does then.
        """
        if self.ended:
            raise TidemillError("this job has ended with its first this_job().transaction()")
        try:
            with db.transaction() as session:
                yield session
                session.flush()
                if self.let_go is not None:
                    self.let_go()
                if not endings.done(session, self._pass_key, [endings.Done(self.id, self.started)]):
                    raise ClaimLost(f"job {self.id} is not ours any more: nothing of this transaction was saved")
                faults.reach("finish.before_commit")
        except BaseException:
            # The job goes on, and so must its lease.
            if self.take_back is not None:
                self.take_back()
            raise
        self.ended = True
        faults.reach("finish.committed")

    def heartbeat(self) -> None:
        """Starts the time limits of this call anew; raises `ClaimLost` if the job is somebody else's now."""
        if not endings.still_ours(self.id, self._pass_key):
            raise ClaimLost(f"job {self.id} is not ours any more")
        if self.restart_limits is not None:
            self.restart_limits()


_current: ContextVar[ThisJob | None] = ContextVar("this_job", default=None)


def this_job() -> ThisJob:
    """The job that this task runs for; an error where the task runs for none, as when it is called as a function."""
    found = _current.get()
    if found is None:
        raise TidemillError("no job runs here: this task was called directly, or sent without enqueue()")
    return found


def running_job() -> ThisJob | None:
    return _current.get()


@contextmanager
def running(job: ThisJob) -> Iterator[ThisJob]:
    token = _current.set(job)
    try:
        yield job
    finally:
        _current.reset(token)
