"""What a running actor can ask about its task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from app.errors import TidemillError
from processes.answers import Handed

#: Of the hand-outs of a task, which is what Celery's side wants to know; how often it is tried is the policy's.
ATTEMPTS = 32767


class ThisTask:
    """The task that this process works on now."""

    def __init__(self, handed: Handed, actor: str, queue: str, attempt: int, created_at: datetime) -> None:
        self.handed, self.actor, self.queue, self.attempt = handed, actor, queue, attempt
        self._created_at = created_at
        self.max_attempts = ATTEMPTS
        self.restart_limits: Any = None
        #: Moves the end of the hand-out on; set by the worker.
        self.beat: Callable[[], None] = lambda: None

    @property
    def process_id(self) -> int:
        return self.handed.process_id

    @property
    def id(self) -> int:
        """The number of the task within its process."""
        return self.handed.number

    @property
    def idempotency_key(self) -> str:
        """The same however often the task is handed out or tried again; another one after an operator has restarted
        it, and never that of another task, also after a restored backup."""
        made = int(self._created_at.timestamp() * 1_000_000)
        return f"{self.process_id}.{self.id}.{self.handed.epoch}-{made:x}"

    def heartbeat(self) -> None:
        """Starts the `work_timeout` anew; raises `ClaimLost` if the task was taken back."""
        self.beat()
        if self.restart_limits is not None:
            self.restart_limits()


_current: ContextVar[ThisTask | None] = ContextVar("this_task", default=None)


def this_task() -> ThisTask:
    """The task that this function is called for; an error where it is called for none, as by a test."""
    found = _current.get()
    if found is None:
        raise TidemillError("no task of a process runs here: this function was called directly")
    return found


@contextmanager
def running(task: ThisTask) -> Iterator[ThisTask]:
    token = _current.set(task)
    try:
        yield task
    finally:
        _current.reset(token)
