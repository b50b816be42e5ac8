"""For tests of jobs and of reactive tasks: calls one without workers, and without a database where the task needs none.

    assert call_job(confirm.s(17), session=session) is None

    run = call(build_orders_mart, {("dds.orders", "loaded_to"): (since, until)}, session=session)
    assert run.outputs == {("mart.orders", "built_to"): until}

A window is what is new of a parameter: from what the last run saw (None: there was none) to the value that was checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from celery.canvas import Signature
from sqlalchemy.orm import Session

from app.alarm import Ended
from app.claims import PassKey
from app.db import transaction
from app.errors import BadRequest, TidemillError
from app.jobs import payload
from app.jobs.batches import size_of
from app.jobs.current import ThisJob, running
from app.jobs.enqueue import attempts_of, queue_of, task_of
from triggers.definition import Definition
from triggers.registration import declared
from triggers.run import Run

Windows = Mapping[tuple[str, str], tuple[datetime | None, datetime | None]]


def call(
    task: Callable[..., Any],
    windows: Windows,
    *,
    session: Session | None = None,
    attempt: int = 1,
    manual: bool = False,
) -> Run:
    """Calls a reactive task as a worker would, and returns its run: `outputs` is what it has advanced, `cancelled` why
    it gave up. What the task raises is raised.

    `run.transaction()` gives the session of the test, flushed and not committed; without one, a transaction of
    `TIDEMILL_DATABASE_URL`. Nothing is written to the control table.
    """
    definition = _definition(task)
    unknown = [".".join(name) for name in windows if name not in definition.trigger.parameters]
    if unknown:
        known = ", ".join(".".join(name) for name in definition.trigger.parameters)
        raise BadRequest(f"{definition.name} does not rest on {', '.join(unknown)}; its trigger names: {known}")
    run = Run(
        {name: windows.get(name, (None, None)) for name in definition.trigger.parameters},
        task=definition.name,
        attempt=attempt,
        queue=definition.queue,
        manual=manual,
        produces=definition.produces,
    )
    run.attach(partial(_ending, run, session), lambda: None)
    function = getattr(task, "run", task)
    try:
        function(*[run] if definition.takes_run else [])
    except Ended:
        if run.cancelled is None:
            raise
    return run


def call_job(signature: Signature[Any], *, session: Session | None = None, attempt: int = 1) -> Any:
    """Calls a task as a worker would for a job of `enqueue(signature)`, and returns what the task returned. What it
    raises is raised, and nothing is tried again.

    `this_job().transaction()` gives the session of the test, flushed and not committed; without one, a transaction of
    `TIDEMILL_DATABASE_URL`. No job is written.
    """
    task = task_of(signature)
    if size_of(task.run):
        raise BadRequest(f"{task.name} takes many jobs at a time: call it with a list of Call")
    # As they come out of the row.
    args, kwargs = map(json.loads, payload.arguments(task.name, signature.args, signature.kwargs))
    job = _Job(task, signature, attempt, session)
    task.push_request(args=args, kwargs=kwargs, retries=attempt - 1, id=str(job.id))
    try:
        with running(job):
            return task.run(*args, **kwargs)
    finally:
        task.pop_request()


class _Job(ThisJob):
    """Of no row: nobody can take it away."""

    def __init__(self, task: Any, signature: Signature[Any], attempt: int, session: Session | None) -> None:
        words = {"id": 1, "attempts": attempt, "max_attempts": attempts_of(task), "key": None}
        queue = queue_of(task, signature.options)
        super().__init__(SimpleNamespace(**words, queue=queue, enqueued_at=datetime.now(UTC)), PassKey(uuid4()))
        self._session = session

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        if self.ended:
            raise TidemillError("this job has ended with its first this_job().transaction()")
        with _flushed(self._session) as tx:
            yield tx
        self.ended = True

    def heartbeat(self) -> None:
        pass


def _definition(task: Any) -> Definition:
    name = getattr(task, "name", None) or f"{task.__module__}.{task.__qualname__}"
    try:
        return declared[name]
    except KeyError:
        raise BadRequest(f"{name} is no reactive task: put @reactive(…) above it, or make a Run yourself") from None


@contextmanager
def _ending(run: Run, session: Session | None) -> Iterator[Session]:
    with _flushed(session) as tx:
        yield tx
    run.ended = True


@contextmanager
def _flushed(session: Session | None) -> Iterator[Session]:
    with transaction() if session is None else nullcontext(session) as tx:
        yield tx
        tx.flush()
