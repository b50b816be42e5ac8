"""Reactive tasks in this process: declared by a test, brought to the database, run without Celery.

`with world() as reactive:` gives a world in which nothing is declared; what was declared before comes back at its end.
Time is that of the control table: a test moves parameters by values such as `day(3)`.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

import sqlalchemy as sa
from celery.exceptions import CDeprecationWarning
from sqlalchemy.engine import Row

from app.alarm import Ended
from app.celery import app as celery_app
from app.db import transaction
from app.jobs.endings import Failure
from app.registry import registry
from recovery import invariants
from recovery import runs as lost_runs
from tests.kit.faults import Crashed
from triggers import Run, ctl, polling, pools, reactive, registration
from triggers.definition import queue_of
from triggers.model import RUN, TASK, CtlSeen
from triggers.sync import Synced, synchronize
from triggers.trigger import Trigger
from triggers.work import RunServer

Body = Callable[[Run], None]
MODULE = __name__
LEASE = timedelta(minutes=1)
#: The parameter that most tests move.
ORDERS = ("dds.orders", "loaded_to")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: float) -> datetime:
    return BEGIN + timedelta(days=number)


@contextmanager
def without_warning() -> Iterator[None]:
    """What the roof makes of a declaration, a Celery task with a queue, is not what these tests are about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CDeprecationWarning)
        yield


def empty(*tables: str) -> None:
    """Of the schema `tidemill`; the control table is not to be emptied but here."""
    names = ", ".join(f"tidemill.{each}" for each in tables)
    guard = "ALTER TABLE tidemill.ctl {} TRIGGER ctl_truncating;"
    execute(sa.text(f"{guard.format('DISABLE')} TRUNCATE {names} CASCADE; {guard.format('ENABLE')}"))


def nothing(_: Run) -> None:
    """The body of most tasks."""


class Failed(Exception):
    """What a body raises that is to fail."""


def fail(_: Run) -> None:
    raise Failed("on purpose")


@dataclass
class Calls:
    """In the place of Celery's side: calls the function, and notes each run."""

    bodies: dict[str, Body] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call_function(self, work: Any, name: str, args: Sequence[Any]) -> Failure | None:
        with self._lock:
            self.runs.append(work)
        try:
            self.bodies[name](*args)
        except Ended as ended:
            return Failure(str(ended), outcome=None)
        except Failed as error:
            return Failure(f"Failed: {error}", "the traceback")
        except Exception as error:  # noqa: BLE001 - as Celery's tracer
            return Failure(f"{type(error).__name__}: {error}", "the traceback")
        return None


def function_of(name: str, module: str = MODULE) -> FunctionType:
    """A function as if it stood in a module."""

    def template(run: Run) -> None:
        raise AssertionError(f"{name} is called by the kit only")

    made = FunctionType(template.__code__, template.__globals__, name, closure=template.__closure__)
    made.__module__, made.__qualname__ = module, name
    return made


class World:
    def __init__(self) -> None:
        self.calls = Calls()

    def declare(
        self, name: str, trigger: Trigger, body: Body = nothing, *, module: str = MODULE, **options: Any
    ) -> str:
        """As `@reactive(trigger, …)` above a function of that name; returns the name of the task."""
        with without_warning():
            function = reactive(trigger, **options)(function_of(name, module))
        task = f"{module}.{function.__qualname__}"
        self.calls.bodies[task] = body
        return task

    def undeclare(self, task: str) -> None:
        del registration.declared[task]

    def change_code(self, task: str, code: str = "another") -> None:
        registration.declared[task] = replace(registration.declared[task], code=code)

    def sync_with_code(self, task: str, code: str) -> Synced:
        self.change_code(task, code)
        return self.sync()

    def sync(self) -> Synced:
        return synchronize()

    def task(self, name: str, trigger: Trigger, body: Body = nothing, **options: Any) -> str:
        """Declared and brought to the database."""
        task = self.declare(name, trigger, body, **options)
        self.sync()
        return task

    def poll(self, limit: int = polling.LIMIT) -> polling.Report:
        return polling.run_once(limit)

    def server(self, worker: str = "w/1") -> RunServer:
        return RunServer(self.calls, worker, LEASE, lambda: False)

    def serve(self, pool: str = "default") -> int:
        """Works off a pool, as a worker with a ticket does; how many runs."""
        return self.server().serve(queue_of(pool), 1)[0]

    def step(self, pool: str = "default") -> int:
        """A polling pass, and a worker."""
        self.poll()
        return self.serve(pool)

    @property
    def ran(self) -> list[str]:
        """The tasks whose function was called, in order."""
        return [run.task for run in self.calls.runs]

    def sweep(self) -> lost_runs.Report:
        """After the lease of whatever runs is over, on a server that has been up for long."""
        execute(lease_over())
        with up_for_long():
            return lost_runs.run_once()

    def pass_backoff(self) -> None:
        execute(sa.update(RUN).where(RUN.c.state == "waiting").values(not_before=None))

    def crash(self, act: Callable[[], object]) -> None:
        """What dies there as by a power failure."""
        try:
            act()
        except Crashed:
            return
        raise AssertionError("the point was not reached")


def execute(statement: Any) -> Sequence[Row[Any]]:
    with transaction() as session:
        result: Any = session.execute(statement)
        return result.all() if getattr(result, "returns_rows", True) else []


def advance(value: datetime, parameter: tuple[str, str] = ORDERS) -> None:
    ctl.advance_many({parameter: value})


def restate(value: datetime, parameter: tuple[str, str] = ORDERS) -> None:
    change: Any = {parameter[1]: value}
    ctl.restate(parameter[0], reason="a test", **change)


def runs(task: str | None = None) -> list[Row[Any]]:
    query = sa.select(*RUN.c).order_by(RUN.c.id)
    return list(execute(query if task is None else query.where(RUN.c.task == task)))


def states(task: str | None = None) -> list[str]:
    return [str(row.state) for row in runs(task)]


def row(task: str) -> Row[Any]:
    (found,) = execute(sa.select(*TASK.c).where(TASK.c.name == task))
    return found


def seen(task: str) -> dict[tuple[str, str], datetime]:
    found = execute(sa.select(CtlSeen.entity, CtlSeen.parameter, CtlSeen.value).where(CtlSeen.task == task))
    return {(each.entity, each.parameter): each.value for each in found}


def set_task(task: str, **values: Any) -> None:
    execute(sa.update(TASK).where(TASK.c.name == task).values(**values))


def violations() -> list[invariants.Violation]:
    with transaction() as session:
        return invariants.check(session)


@contextmanager
def world() -> Iterator[World]:
    known = set(registry.functions)
    with patch.dict(registration.declared, clear=True), patch.dict(pools.declared, clear=True):
        yield World()
    for name in registry.functions.keys() - known:
        if registry.functions.pop(name).function is not None:
            celery_app.tasks.pop(name, None)


def lease_over() -> Any:
    return sa.update(RUN).where(RUN.c.state == "running").values(recovery_time=sa.func.now() - LEASE)


def up_for_long() -> Any:
    """A sweep in the block does not wait one lease after the start of the server."""
    return patch.object(lost_runs, "settings", lambda: type("NoLease", (), {"lease": timedelta(0)}))


@contextmanager
def module(name: str) -> Iterator[str]:
    """A module that is imported here."""
    sys.modules[name] = ModuleType(name)
    try:
        yield name
    finally:
        del sys.modules[name]
