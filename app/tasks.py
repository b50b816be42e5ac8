"""The Celery side of a ticket: the class of every task of the application, how a job is called, the control tasks.

A task that is called, or sent with Celery's own `apply_async`, behaves as in any Celery application. One that comes
with a ticket claims jobs of the ticket's queue and runs each under its own name, with a request of its own, through
Celery's tracer: signals, logging, `self.retry` and `autoretry_for` work as ever.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery, Task
from celery.exceptions import Ignore, MaxRetriesExceededError, Retry

from app import doorbell, faults
from app.alarm import alarm
from app.calling import BATCH, OWN, CeleryCalls, retry_time
from app.doorbell import GENERIC
from app.errors import BadRequest, Unavailable, Unsupported
from app.jobs import payload
from app.jobs.current import running_job
from app.jobs.enqueue import ATTEMPTS_LIMIT
from app.jobs.run import Runner
from app.registry import Server, registry
from app.settings import settings
from app.stopping import stopping
from app.stopwatch import stopwatch
from app.workers import child_name

log = logging.getLogger(__name__)

SHARDS_MOST = 4096


class Ticketed(Task):  # type: ignore[type-arg]
    """The base of all tasks of the application."""

    abstract = True
    Request = "app.late:TicketRequest"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        request = self.request
        if request.called_directly:
            return super().__call__(*args, **kwargs)
        ticket = getattr(request, doorbell.TICKET, None)
        if ticket is None:
            return self.run(*args, **kwargs)
        queue = (request.delivery_info or {}).get("routing_key")
        return serve(self.app, queue, ticket, str(request.hostname))

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: Exception | None = None,
        throw: bool = True,  # noqa: FBT001
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Any:
        """For a job: gives it back. Nothing is sent; the row says when it is tried again."""
        if getattr(self.request, BATCH, False):
            raise exc or Unsupported(f"{self.name}: a batch is tried again call by call: raise what went wrong")
        if getattr(self.request, OWN, False):
            at, span = self._time_of_retry(eta, countdown)
            left = span if at is None else max(timedelta(0), at - datetime.now(UTC))
            return _again(exc, left.total_seconds(), throw)
        job = running_job()
        if job is None or self.request.called_directly or self.request.is_eager:
            return super().retry(args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        if options:
            raise Unsupported(f"{self.name}: a job cannot change {', '.join(sorted(options))} when it is tried again")
        if max_retries is not None and type(max_retries) is not int:
            raise BadRequest(f"{self.name}: max_retries={max_retries!r:.100} must be a whole number")
        # What enqueue() was told rules; it was told what the task says, unless the caller said otherwise.
        attempts = job.max_attempts if max_retries is None else min(max_retries + 1, ATTEMPTS_LIMIT)
        if job.attempt >= attempts < ATTEMPTS_LIMIT:
            if exc is not None:
                raise exc
            raise MaxRetriesExceededError(f"{self.name}: job {job.id} was tried {job.attempt} times")
        at, span = self._time_of_retry(eta, countdown)
        changes = _changed(self.name, args, kwargs) | {"max_attempts": attempts}
        return _again(exc, at or span.total_seconds(), throw, changes)

    def _time_of_retry(self, eta: Any, countdown: Any) -> tuple[datetime | None, timedelta]:
        if eta is not None:
            return retry_time(f"{self.name}: eta", eta)
        return retry_time(f"{self.name}: countdown", self.default_retry_delay if countdown is None else countdown)


def called(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Of a task whose base may have a `__call__` of its own. Programs of an older release send tickets in its name."""
    if getattr(self.request, doorbell.TICKET, None) is not None and not self.request.called_directly:
        return Ticketed.__call__(self, *args, **kwargs)
    return super(type(self), self).__call__(*args, **kwargs)


class Owned(Ticketed):
    """Made of a function of a domain: the domain's rows start it, and no message or job."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        request = self.request
        if request.called_directly or getattr(request, OWN, False) or getattr(request, doorbell.TICKET, None):
            return super().__call__(*args, **kwargs)
        log.error("a message was dropped: %s", self._refusal())
        raise Ignore

    def signature(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002
        raise self._refusal()

    def apply_async(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002
        raise self._refusal()

    @property
    def queue(self) -> str:
        """What `enqueue` asks for first, whatever made the signature."""
        raise self._refusal()

    def _refusal(self) -> Unsupported:
        return Unsupported(f"{self.name} cannot be sent or enqueued: {registry.functions[self.name].started_by}")


def _again(exc: Exception | None, when: Any, throw: bool, changes: dict[str, Any] | None = None) -> Any:  # noqa: FBT001
    retry: Any = Retry(exc=exc, when=when)
    retry.changes = changes or {}
    if throw:
        raise retry
    return retry


def _changed(task: str, args: Any, kwargs: Any) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if args is not None:
        payload.arguments(task, args, None)
        changes["args"] = list(args)
    if kwargs is not None:
        payload.arguments(task, None, kwargs)
        changes["kwargs"] = dict(kwargs)
    return changes


_servers: tuple[int, dict[str, Server]] | None = None


def serve(app: Celery[Any], queue: str | None, ticket: Any, hostname: str) -> str:
    """Works off the queue that a ticket came by. A ticket holds no authority: whatever it says, the claim decides."""
    faults.reach("ticket.received")
    take = ticket.get("take") if isinstance(ticket, dict) else None
    if type(take) is not int or take < 1 or not queue or ticket.get("queue") != queue or not _sensible(ticket):
        log.error("a ticket that makes no sense was dropped: %.200r", ticket)
        return "nonsense"
    if stopping.is_held():
        return "not migrated"
    shards = tuple(ticket["shards"]) if "shards" in ticket else None
    try:
        ran, more = _server(app, hostname, registry.server_of(queue)).serve(queue, min(take, doorbell.TAKE), shards)
    except Unavailable as error:
        log.warning("ticket for %s dropped, its work is found again: %s", queue, error)
        return "database away"
    finally:
        stopwatch.hand_on()
    if more and not stopping.is_set():
        doorbell.ring(queue, GENERIC)
    return f"{ran} done"


def _sensible(ticket: dict[str, Any]) -> bool:
    """Of its shards, if it names any."""
    match ticket.get("shards", [0, 0]):
        case [int(first), int(last)]:
            return 0 <= first <= last < SHARDS_MOST
        case _:
            return False


def _server(app: Celery[Any], hostname: str, word: str) -> Server:
    """That of this process: what a parent has learned of the queue is worthless after a fork."""
    global _servers
    if _servers is None or _servers[0] != os.getpid():
        alarm.install()
        _servers = (os.getpid(), {})
    servers = _servers[1]
    if word not in servers:
        make = registry.servers[word] if word else Runner
        worker = child_name(hostname, os.getpid())
        servers[word] = make(CeleryCalls(app, hostname), worker, settings().lease, stopping.is_set)
    return servers[word]
