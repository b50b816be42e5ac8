"""How Celery's tasks are called for work that a claim holds: through Celery's tracer, with a request of its own, within
limits of its own; and what came of it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from billiard.einfo import ExceptionInfo
from billiard.exceptions import SoftTimeLimitExceeded
from celery import Celery, states
from celery.app.trace import build_tracer
from sqlalchemy.engine import Row

from app.alarm import ClaimIsLost, Ended, HandBack, OutOfTime, alarm
from app.db import remaining_time
from app.errors import BadRequest, NotJson, TooLarge, Unavailable
from app.jobs import payload
from app.jobs.batches import Call, size_of
from app.jobs.current import ThisJob
from app.jobs.endings import Done, Failure
from app.jobs.model import Outcome
from app.registry import registry

log = logging.getLogger(__name__)

#: In the request of a call: of a batch; and of a domain, which has its own words for trying again.
BATCH, OWN = "tidemill_batch", "tidemill_own"
#: Another program may have put in numbers and depths that Python does not read.
_UNREADABLE = (ValueError, RecursionError)
AWAY_DELAY = timedelta(seconds=1)
UNKNOWN_TASK_DELAY = timedelta(seconds=60)
#: What the error of such a job begins with.
NOT_REGISTERED = "no task named"
LIMIT_DELAY = timedelta(seconds=1)


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

    def consumes(self, queue: str) -> bool:
        """Whether tickets for this queue come to this worker."""
        return queue in self.app.amqp.queues.consume_from

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
        outcome, _ = self._call(first, task, [calls], {}, {BATCH: True}, min(row.attempts for row in rows))
        return outcome

    def call_function(self, work: Called, name: str, args: Sequence[Any]) -> Failure | None:
        """For a domain: its work under the name of the user's function."""
        return self.call_for_value(work, name, args, {}, None)[0]

    def call_for_value(
        self, work: Called, name: str, args: Sequence[Any], kwargs: dict[str, Any], limit: float | None
    ) -> tuple[Failure | None, Any]:
        """The same with what the function returned; `limit`: the seconds that are left for it."""
        # A run and a job may have the same number.
        known = {"id": work.idempotency_key, "root_id": work.idempotency_key, OWN: True}
        failed, value = self._call(work, name, list(args), kwargs, known, work.attempt, limit)
        if failed is None and isinstance(value, ExceptionInfo):
            # Celery's `Ignore`, which says that there is no result: for a domain that is none.
            failed = Failure(_told(value.exception), _trace(value), raised=value.exception)
        return failed, value

    def _call(
        self,
        job: Called,
        name: str,
        args: Any,
        kwargs: Any,
        more: dict[str, Any],
        attempt: int,
        limit: float | None = None,
    ) -> tuple[Failure | None, Any]:
        task = self.app.tasks.get(name)
        if task is None:
            log.error("no task named %s is registered here: job %s waits for a worker that knows it", name, job.id)
            text = f"{NOT_REGISTERED} {name} is registered on {self.hostname}"
            return Failure(text, again=UNKNOWN_TASK_DELAY, outcome=None, uncharged=True), None
        own = registry.functions.get(name) if OWN in more else None
        limits = _Limits(task, limit or (own.time_limit if own else None))
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
            return Failure(_told(error), raised=error), None
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
        over = OutOfTime(self.hard)
        if job.attempt >= job.max_attempts:
            return Failure(text, raised=over)
        return Failure(text, again=LIMIT_DELAY * 2 ** min(job.attempt, 8), outcome=Outcome.RETRIED, raised=over)

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
        try:
            at, span = retry_time("when", error.when)
        except BadRequest as wrong:
            return Failure(_told(wrong), _trace(returned), raised=wrong), None
        if at is not None:
            changes["not_before"] = at
        cause = error.exc if error.exc is not None else error
        return Failure(_told(cause), _trace(returned), span, Outcome.RETRIED, changes=changes), None
    if info.state == states.REJECTED and getattr(error, "requeue", False) and job.attempt < job.max_attempts:
        return Failure(_told(error), again=timedelta(seconds=1), outcome=Outcome.RETRIED), None
    if isinstance(error, Unavailable) and job.attempt < job.max_attempts:
        # Like a lost worker. It counts: a task may be what ends the connection, every time.
        again = AWAY_DELAY * 2 ** min(job.attempt, 6)
        return Failure(_told(error), again=again, outcome=Outcome.RETRIED, raised=error), None
    return Failure(_told(error), _trace(returned), raised=error), None


def retry_time(what: str, value: Any) -> tuple[datetime | None, timedelta]:
    """When work is tried again: at a moment, or after a span. Celery reads a time without a zone in the zone of the
    application, which is UTC here."""
    if isinstance(value, datetime) and value.utcoffset() is None:
        value = value.replace(tzinfo=UTC)
    at, span = payload.moment(what, value)
    return at, max(timedelta(0), span or timedelta(0))


def _arguments(row: Row[Any]) -> tuple[Any, Any]:
    return json.loads(row.args), json.loads(row.kwargs)


def _told(error: Any) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an error that cannot say what it is, is one all the same
        return type(error).__name__


def _trace(einfo: Any) -> str | None:
    return getattr(einfo, "traceback", None)
