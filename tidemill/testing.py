"""For tests of reactive tasks: calls one without workers, and without a database where the task needs none.

    run = call(build_orders_mart, {("dds.orders", "loaded_to"): (since, until)}, session=session)
    assert run.outputs == {("mart.orders", "built_to"): until}

A window is what is new of a parameter: from what the last run saw (None: there was none) to the value that was checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from app.alarm import Ended
from app.db import transaction
from app.errors import BadRequest
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


def _definition(task: Any) -> Definition:
    name = getattr(task, "name", None) or f"{task.__module__}.{task.__qualname__}"
    try:
        return declared[name]
    except KeyError:
        raise BadRequest(f"{name} is no reactive task: put @reactive(…) above it, or make a Run yourself") from None


@contextmanager
def _ending(run: Run, session: Session | None) -> Iterator[Session]:
    with transaction() if session is None else nullcontext(session) as tx:
        yield tx
        tx.flush()
    run.ended = True
