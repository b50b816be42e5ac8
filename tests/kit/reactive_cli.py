"""Reactive tasks as they are when services have registered them, and a worker that calls what the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import transaction
from app.jobs.endings import Failure
from app.jobs.model import Outcome
from triggers import ctl, registration
from triggers.definition import Definition
from triggers.model import CtlSeen, TaskRun
from triggers.polling import run_once
from triggers.run import Run
from triggers.sync import write
from triggers.trigger import Delta, Trigger
from triggers.work import RunServer

DAY = datetime(2026, 7, 1, tzinfo=UTC)
ORDERS = ("dds.orders", "loaded_to")
MART = "shop.marts.build_orders_mart"


def day(number: int) -> datetime:
    return DAY + timedelta(days=number - 1)


def orders(number: int) -> None:
    """They are loaded up to this day of July."""
    ctl.advance("dds.orders", loaded_to=day(number))


def definition(name: str = MART, trigger: Trigger | None = None, **options: Any) -> Definition:
    words: dict[str, Any] = {
        "name": name,
        "module": name.rpartition(".")[0],
        "takes_run": True,
        "trigger": trigger or Delta(*ORDERS, "1d"),
        "pool": "marts",
        "priority": 0,
        "produces": None,
        "min_interval": None,
        "first_run": "fire",
        "on_lapse": "drop",
        "max_failures": 5,
        "backoff": timedelta(seconds=5),
        "time_limit": None,
        "code": "1",
    }
    return Definition(**(words | options))


def register(*definitions: Definition) -> None:
    """These, and nothing else of their modules."""
    with transaction() as session:
        write(session, {each.name: each for each in definitions})
    registration.declared.update({each.name: each for each in definitions})


def unregister() -> None:
    for name in [name for name in registration.declared if name.startswith("shop.")]:
        del registration.declared[name]


class Worker:
    """Takes the runs of a pool; the body of each is what the test gives."""

    def __init__(self, pool: str = "marts") -> None:
        self.queue = f"reactive.{pool}"
        self.runs: list[Run] = []
        self._body: Callable[[Run], None] = lambda _run: None
        self._stop = False
        self._server = RunServer(self, "w/1", timedelta(minutes=1), lambda: self._stop)

    def call_function(self, work: Run, name: str, args: Sequence[Any]) -> Failure | None:
        self.runs.append(work)
        self._stop = True
        try:
            self._body(work)
        except RuntimeError as error:
            return Failure(f"RuntimeError: {error}", None, None, Outcome.FAILED)
        return None

    def serve(self, body: Callable[[Run], None] = lambda _run: None) -> int:
        """One run; how many there were."""
        self._body, self._stop = body, False
        self._server.cursors.clear()
        return self._server.serve(self.queue, 1)[0]


def evaluate() -> int:
    """One pass; how many runs it made."""
    return run_once().started


def seen(session: Session, task: str = MART) -> datetime | None:
    session.rollback()
    return session.execute(sa.select(CtlSeen.value).where(CtlSeen.task == task)).scalar_one_or_none()


def states(session: Session, task: str = MART) -> list[str]:
    """Of its runs, in order."""
    session.rollback()
    query = sa.select(TaskRun.state).where(TaskRun.task == task).order_by(TaskRun.id)
    return [str(state) for state in session.execute(query).scalars()]


@contextmanager
def alone() -> Iterator[None]:
    """Without the tasks that other tests of this process have imported."""
    others = dict(registration.declared)
    registration.declared.clear()
    yield
    registration.declared.clear()
    registration.declared.update(others)
