"""The Celery side of a ticket: the class of every task of the application, how a job is called, the control tasks.

A task that is called, or sent with Celery's own `apply_async`, behaves as in any Celery application. One that comes
with a ticket claims jobs of the ticket's queue and runs each under its own name, with a request of its own, through
Celery's tracer: signals, logging, `self.retry` and `autoretry_for` work as ever.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from billiard.einfo import ExceptionInfo
from billiard.exceptions import SoftTimeLimitExceeded
from celery import Celery, Task, states
from celery.app.trace import build_tracer
from celery.exceptions import Ignore, MaxRetriesExceededError, Retry
from sqlalchemy.engine import Row

from app import doorbell, faults
from app.alarm import ClaimIsLost, Ended, HandBack, OutOfTime, alarm
from app.db import remaining_time
from app.doorbell import GENERIC
from app.errors import NotJson, TooLarge, Unavailable, Unsupported
from app.jobs import payload
from app.jobs.batches import Call, size_of
from app.jobs.current import ThisJob, running_job
from app.jobs.endings import Done, Failure
from app.jobs.enqueue import ATTEMPTS_LIMIT
from app.jobs.model import Outcome
from app.jobs.run import Runner
from app.registry import Server, registry
from app.settings import settings
from app.stopping import stopping
from app.workers import child_name

log = logging.getLogger(__name__)

_BATCH = "tidemill_batch"
#: The call is work of a domain, which has its own words for trying again.
_OWN = "tidemill_own"
#: Another program may have put in numbers and depths that Python does not read.
_UNREADABLE = (ValueError, RecursionError)
AWAY_DELAY = timedelta(seconds=1)
UNKNOWN_TASK_DELAY = timedelta(seconds=60)
LIMIT_DELAY = timedelta(seconds=1)


class Ticketed(Task):  # type: ignore[type-arg]
    """The base of all tasks of the application."""

    abstract = True

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
        if getattr(self.request, _BATCH, False):
            raise exc or Unsupported(f"{self.name}: a batch is tried again call by call: raise what went wrong")
        if getattr(self.request, _OWN, False):
            delay: Any = self.default_retry_delay if countdown is None else countdown
            if eta is not None:
                delay = max(0.0, _until(eta))
            again: Any = Retry(exc=exc, when=delay)
            if throw:
                raise again
            return again
        job = running_job()
        if job is None or self.request.called_directly or self.request.is_eager:
            return super().retry(args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        if options:
            raise Unsupported(f"{self.name}: a job cannot change {', '.join(sorted(options))} when it is tried again")
        # What enqueue() was told rules; it was told what the task says, unless the caller said otherwise.
        attempts = job.max_attempts if max_retries is None else min(max_retries + 1, ATTEMPTS_LIMIT)
        if job.attempt >= attempts < ATTEMPTS_LIMIT:
            if exc is not None:
                raise exc
            raise MaxRetriesExceededError(f"{self.name}: job {job.id} was tried {job.attempt} times")
        seconds: Any = self.default_retry_delay if countdown is None else countdown
        payload.moment("countdown", seconds)
        again = Retry(exc=exc, when=eta or seconds)
        again.changes = _changed(self.name, args, kwargs) | {"max_attempts": attempts}
        if throw:
            raise again
        return again


class Owned(Ticketed):
    """Made of a function of a domain: the domain's rows start it, and no message or job."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        request = self.request
        if request.called_directly or getattr(request, _OWN, False) or getattr(request, doorbell.TICKET, None):
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
        return Unsupported(
            f"{self.name} is started by its trigger, and cannot be sent or enqueued: "
            f"start it by hand with 'tidemill reactive run {self.name}'"
        )


def _changed(task: str, args: Any, kwargs: Any) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if args is not None:
        payload.arguments(task, args, None)
        changes["args"] = list(args)
    if kwargs is not None:
        payload.arguments(task, None, kwargs)
        changes["kwargs"] = dict(kwargs)
    return changes


class Called(Protocol):
    """What a call needs to know of its work."""

    restart_limits: Any

    @property
    def id(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def queue(self) -> str: ...
    @property
    def idempotency_key(self) -> str: ...


class CeleryCalls:
    """Calls tasks of a Celery application through its tracer."""

    def __init__(self, app: Celery[Any], hostname: str) -> None:
        self.app, self.hostname = app, hostname
        self._tracers: dict[str, Any] = {}

    def _tracer(self, name: str) -> Any:
        """Building one costs more than a call through it."""
        if name not in self._tracers:
            self._tracers[name] = build_tracer(name, self.app.tasks[name], self.app.loader, self.hostname, app=self.app)
        return self._tracers[name]

    def batch_size(self, name: str) -> int:
        task = self.app.tasks.get(name)
        return size_of(getattr(task, "run", None))

    def call(self, job: ThisJob, row: Row[Any]) -> Done | Failure:
        try:
            args, kwargs = _arguments(row)
        except _UNREADABLE as error:
            return Failure(f"the arguments cannot be read: {_told(error)}")
        outcome, result = self._call(job, row.task, args, kwargs, {}, row.attempts)
        if isinstance(outcome, Failure):
            return outcome
        return Done(row.id, job.started, self._kept(row.task, result))

    def call_batch(self, task: str, rows: Sequence[Row[Any]]) -> Failure | None:
        first = ThisJob(rows[0], rows[0].pass_key)
        first.started = time.monotonic()
        try:
            calls = [Call(row.id, *_arguments(row), row.attempts, row.enqueued_at) for row in rows]
        except _UNREADABLE as error:
            return Failure(f"the arguments cannot be read: {_told(error)}")
        outcome, _ = self._call(first, task, [calls], {}, {_BATCH: True}, min(row.attempts for row in rows))
        return outcome

    def call_function(self, work: Called, name: str, args: Sequence[Any]) -> Failure | None:
        """For a domain: its work under the name of the user's function."""
        # A run and a job may have the same number.
        known = {"id": work.idempotency_key, "root_id": work.idempotency_key, _OWN: True}
        outcome, _ = self._call(work, name, list(args), {}, known, work.attempt)
        return outcome

    def _call(
        self, job: Called, name: str, args: Any, kwargs: Any, more: dict[str, Any], attempt: int
    ) -> tuple[Failure | None, Any]:
        task = self.app.tasks.get(name)
        if task is None:
            log.error("no task named %s is registered here: job %s waits for a worker that knows it", name, job.id)
            text = f"no task named {name} is registered on {self.hostname}"
            return Failure(text, again=UNKNOWN_TASK_DELAY, outcome=None, uncharged=True), None
        own = registry.functions.get(name) if _OWN in more else None
        limits = _Limits(task, own.time_limit if own else None)
        job.restart_limits = limits.start
        limits.start()
        token = remaining_time.set(limits.remaining) if limits.hard else None
        request = self._request(job, attempt) | more
        try:
            with alarm.guarding():
                traced = self._tracer(name)(request["id"], args, kwargs, request)
            outcome = _outcome(job, traced.info, traced.retval)
            # The database ends a query at the limit, and the error that this raises may come before the alarm.
            return (limits.failure(job), None) if outcome[0] and limits.over() else outcome
        except OutOfTime:
            return limits.failure(job), None
        except HandBack as stop:
            return Failure(str(stop), again=timedelta(0), outcome=Outcome.INTERRUPTED, uncharged=True), None
        except Ended as ended:
            return Failure(str(ended), outcome=None), None
        except ClaimIsLost as lost:
            # As the sweep would have it, if the claim is still there to be ended.
            again = LIMIT_DELAY * 2 ** min(job.attempt, 8) if job.attempt < job.max_attempts else None
            return Failure(f"claim lost: {lost}", again=again, outcome=Outcome.LOST), None
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            # Such as asyncio's CancelledError, which Celery lets through: a failure of this job, not of the worker.
            log.exception("task %s[%s] raised", name, job.id)
            return Failure(_told(error)), None
        finally:
            limits.clear()
            if token is not None:
                remaining_time.reset(token)

    def _request(self, job: Called, attempt: int) -> dict[str, Any]:
        """What the task sees as `self.request`."""
        return {
            "id": str(job.id),
            "root_id": str(job.id),
            "retries": attempt - 1,
            "hostname": self.hostname,
            "delivery_info": {"routing_key": job.queue, "exchange": "", "priority": None, "redelivered": False},
            "ignore_result": True,
            "headers": {"idempotency_key": job.idempotency_key},
        }

    def _kept(self, name: str, result: Any) -> str | None:
        if result is None or self.app.tasks[name].ignore_result:
            return None
        try:
            return payload.limited(f"the result of {name}", payload.as_json(f"the result of {name}", result))
        except (NotJson, TooLarge) as error:
            log.warning("%s; it is not kept", error)
            return None


class _Limits:
    """Celery's soft and hard limit of a task, for one call of it; `hard`: what its domain says instead."""

    def __init__(self, task: Any, hard: float | None = None) -> None:
        conf = task.app.conf
        self.soft = task.soft_time_limit or conf.task_soft_time_limit
        self.hard = hard or task.time_limit or conf.task_time_limit
        self._end = 0.0

    def start(self) -> None:
        now = time.monotonic()
        if self.soft:
            alarm.set("soft", now + self.soft, lambda: SoftTimeLimitExceeded(self.soft))
        if self.hard:
            self._end = now + self.hard
            alarm.set("hard", self._end, lambda: OutOfTime(self.hard))

    def remaining(self) -> float:
        return self._end - time.monotonic()

    def over(self) -> bool:
        return bool(self.hard) and self.remaining() <= 0

    def failure(self, job: Called) -> Failure:
        """Like a lost worker: an attempt, and another one if there is one left."""
        text = f"over its time limit of {self.hard:g} s"
        if job.attempt >= job.max_attempts:
            return Failure(text)
        return Failure(text, again=LIMIT_DELAY * 2 ** min(job.attempt, 8), outcome=Outcome.RETRIED)

    def clear(self) -> None:
        alarm.clear("soft")
        alarm.clear("hard")


def _outcome(job: Called, info: Any, returned: Any) -> tuple[Failure | None, Any]:
    if info is None and isinstance(returned, ExceptionInfo):
        # It failed before the task began, and the tracer says so in this way only.
        return Failure(_told(returned.exception), _trace(returned)), None
    if info is None or info.state == states.IGNORED:
        return None, returned
    error = info.retval
    if info.state == states.RETRY:
        changes = dict(getattr(error, "changes", {}))
        again = timedelta(0)
        if isinstance(error.when, datetime):
            changes["not_before"] = _aware(error.when)
        else:
            again = timedelta(seconds=max(0.0, float(error.when or 0)))
        cause = error.exc if error.exc is not None else error
        return Failure(_told(cause), _trace(returned), again, Outcome.RETRIED, changes=changes), None
    if info.state == states.REJECTED and getattr(error, "requeue", False) and job.attempt < job.max_attempts:
        return Failure(_told(error), again=timedelta(seconds=1), outcome=Outcome.RETRIED), None
    if isinstance(error, Unavailable) and job.attempt < job.max_attempts:
        # Like a lost worker. It counts: a task may be what ends the connection, every time.
        return Failure(_told(error), again=AWAY_DELAY * 2 ** min(job.attempt, 6), outcome=Outcome.RETRIED), None
    return Failure(_told(error), _trace(returned)), None


def _aware(moment: datetime) -> datetime:
    """Celery reads a time without a zone in the zone of the application, which is UTC here."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _until(moment: datetime) -> float:
    return (_aware(moment) - datetime.now(UTC)).total_seconds()


def _arguments(row: Row[Any]) -> tuple[Any, Any]:
    return json.loads(row.args), json.loads(row.kwargs)


def _told(error: Any) -> str:
    return f"{type(error).__name__}: {error}"


def _trace(einfo: Any) -> str | None:
    return getattr(einfo, "traceback", None)


_servers: tuple[int, dict[str, Server]] | None = None


def serve(app: Celery[Any], queue: str | None, ticket: Any, hostname: str) -> str:
    """Works off the queue that a ticket came by. A ticket holds no authority: whatever it says, the claim decides."""
    faults.reach("ticket.received")
    take = ticket.get("take") if isinstance(ticket, dict) else None
    if type(take) is not int or take < 1 or not queue or ticket.get("queue") != queue:
        log.error("a ticket that makes no sense was dropped: %.200r", ticket)
        return "nonsense"
    try:
        ran, more = _server(app, hostname, registry.server_of(queue)).serve(queue, min(take, doorbell.TAKE))
    except Unavailable as error:
        log.warning("ticket for %s dropped, its work is found again: %s", queue, error)
        return "database away"
    if more and not stopping.is_set():
        doorbell.ring(queue, GENERIC)
    return f"{ran} done"


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
