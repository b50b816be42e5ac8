"""A user's module: reactive tasks. Each rests on `loaded_to` of an entity of its own (`source`), and notes each call in
`public.execution`, with the increment that it was given, so that a test can count and add up."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from celery import shared_task, signals
from sqlalchemy.orm import Session

from app.db import transaction
from tests.kit import tasks
from tests.kit.waiting import pause, wait_for_file, wait_until
from triggers import Delta, Run, ctl, pool, reactive

log = logging.getLogger(__name__)

PARAMETER = "loaded_to"
#: The values of the parameters are steps of a millisecond from here.
BEGIN = datetime(2026, 7, 1, tzinfo=UTC)
STEP = timedelta(milliseconds=1)
CROWD = 50
SILENT_UNTIL = "SILENT_UNTIL"
MODULES = f"{tasks.__name__},{__name__}"

_BEGUN = sa.text(
    "INSERT INTO public.execution (task, value, job_id, attempt, pid, ended_at) "
    "VALUES (:task, :value, :run, :attempt, :pid, case when :over then clock_timestamp() end) RETURNING id"
)
_ENDED = sa.text("UPDATE public.execution SET ended_at = clock_timestamp() WHERE id = :id")


def source(task: str) -> str:
    return f"src.{task}"


def new_data(task: str) -> Delta:
    return Delta(source(task), PARAMETER, STEP)


def at(step: int) -> datetime:
    return BEGIN + step * STEP


def load(task: str, step: int) -> None:
    """What the producers of the warehouse do."""
    ctl.advance(source(task), loaded_to=at(step))


def full_name(task: str) -> str:
    return f"{__name__}.{task}"


def open_gate(task: str) -> None:
    """Lets those go on that wait in `gated`."""
    ctl.advance(source(task), open=BEGIN)


def _gate_is_open(task: str) -> bool:
    return ctl.get(source(task), "open") is not None


def _note(session: Session, task: str, run: Run, *, over: bool) -> int:
    since, until = run.window(source(task), PARAMETER)
    value = json.dumps([since and since.isoformat(), until.isoformat()])
    row = {"task": task, "value": value, "run": run.id, "attempt": run.attempt, "pid": os.getpid(), "over": over}
    return int(session.execute(_BEGUN, row).scalar_one())


@contextmanager
def noted(task: str, run: Run) -> Iterator[None]:
    """The row is there when the body begins, and says when it ended well."""
    with transaction() as session:
        row = _note(session, task, run, over=False)
    yield
    with transaction() as session:
        session.execute(_ENDED, {"id": row})


@contextmanager
def counted(task: str) -> Iterator[int]:
    """For tasks that are given no run: the number of this call, from 1."""
    with transaction() as session:
        row = {"task": task, "value": "[null, null]", "run": None, "attempt": None, "pid": os.getpid(), "over": False}
        call = int(session.execute(_BEGUN, row).scalar_one())
        number = sa.text("SELECT count(*) FROM public.execution WHERE task = :task")
        calls = int(session.execute(number, {"task": task}).scalar_one())
    yield calls
    with transaction() as session:
        session.execute(_ENDED, {"id": call})


@reactive(new_data("plain"), max_failures=1000, backoff="100ms")
def plain(run: Run) -> None:
    """At least once: what it does is not in the transaction that ends the run."""
    with noted("plain", run):
        pass


@reactive(new_data("exact"), produces=[(source("mart"), PARAMETER)], max_failures=1000, backoff="100ms")
def exact(run: Run) -> None:
    """Exactly once; and delivers what `mart` waits for."""
    with run.transaction() as session:
        _note(session, "exact", run, over=True)
        _, until = run.window(source("exact"), PARAMETER)
        run.advance(source("mart"), loaded_to=until)


@reactive(new_data("mart"), max_failures=1000, backoff="100ms")
def mart(run: Run) -> None:
    with run.transaction() as session:
        _note(session, "mart", run, over=True)


@reactive(new_data("gated"), max_failures=1000, backoff="100ms")
def gated(run: Run) -> None:
    """Waits for the test to open the gate."""
    with noted("gated", run):
        wait_until(lambda: _gate_is_open("gated"), 300)


@reactive(new_data("silent"), max_failures=1000, backoff="100ms")
def silent(run: Run) -> None:
    """Works for a while without the database; where the environment names a file, until that is there."""
    with noted("silent", run):
        pass
    if path := os.environ.get(SILENT_UNTIL):
        wait_for_file(path)
    else:
        pause(1.5)


@reactive(new_data("stolen"), max_failures=1000, backoff="100ms")
def stolen(run: Run) -> None:
    """Another claim takes the run while it works for the first time."""
    if run.attempt == 1:
        with transaction() as session:
            steal = sa.text("UPDATE tidemill.run SET pass_key = gen_random_uuid() WHERE id = :id")
            session.execute(steal, {"id": run.id})
    with run.transaction() as session:
        _note(session, "stolen", run, over=True)


@reactive(new_data("poison"), max_failures=3, backoff="100ms")
def poison(run: Run) -> None:
    """Kills its process every time."""
    with noted("poison", run):
        os.kill(os.getpid(), signal.SIGKILL)


@reactive(new_data("failing"), max_failures=2, backoff="100ms")
def failing(run: Run) -> None:
    with noted("failing", run):
        raise RuntimeError("failed on purpose")


@reactive(new_data("limited"), time_limit="1s", max_failures=1)
def limited(run: Run) -> None:
    with noted("limited", run):
        pause(300)


@reactive(new_data("gives_up"))
def gives_up(run: Run) -> None:
    with noted("gives_up", run):
        run.cancel("nothing to do on this day")


@reactive(new_data("apart"), pool="apart")
def apart(run: Run) -> None:
    with noted("apart", run):
        pass


@reactive(new_data("knows_nothing"))
@shared_task
def knows_nothing() -> None:
    """A Celery task as it was before."""
    with counted("knows_nothing"):
        pass


@reactive(new_data("bound"), max_failures=5)
@shared_task(bind=True, max_retries=None, default_retry_delay=0)
def bound(self: Any, run: Run) -> None:
    """Asks twice to be tried again."""
    with noted("bound", run):
        if run.attempt <= 2:
            raise self.retry(exc=RuntimeError("not yet"), countdown=0.05)


@reactive(new_data("later"), max_failures=5)
@shared_task(bind=True, max_retries=None)
def later(self: Any, run: Run) -> None:
    """Says at what time it is to be tried again."""
    with noted("later", run):
        if run.attempt == 1:
            raise self.retry(exc=RuntimeError("not yet"), eta=datetime.now(UTC) + timedelta(seconds=1))


@reactive(new_data("flaky"), max_failures=5)
@shared_task(autoretry_for=(ConnectionError,), default_retry_delay=0, retry_backoff=False)
def flaky(run: Run) -> None:
    with noted("flaky", run):
        if run.attempt <= 2:
            raise ConnectionError(f"attempt {run.attempt} fails")


@reactive(new_data("short"), max_failures=1)
@shared_task(time_limit=1)
def short(run: Run) -> None:
    """With a limit that the Celery task says."""
    with noted("short", run):
        pause(300)


@reactive(new_data("shorter"), time_limit="1s", max_failures=1)
@shared_task
def shorter(run: Run) -> None:
    """With a limit that only the reactive task says."""
    with noted("shorter", run):
        pause(300)


pool("crowd", max_parallel=3)


def _one_of_the_crowd(name: str) -> Any:
    def one(run: Run) -> None:
        del run
        with counted(name):
            pause(0.1)

    one.__name__ = one.__qualname__ = name
    return one


for _number in range(CROWD):
    reactive(new_data("crowd"), pool="crowd")(_one_of_the_crowd(f"crowd_{_number}"))


@signals.task_prerun.connect(weak=False)
def _log_prerun(sender: Any, task_id: str, **_: Any) -> None:
    log.info("signal: prerun of %s[%s]", sender.name, task_id)


@signals.task_success.connect(weak=False)
def _log_success(sender: Any, **_: Any) -> None:
    log.info("signal: success of %s", sender.name)


# What tests ask of the database.


def increments(session: Session, task: str, *, ended: bool = False) -> list[tuple[datetime | None, datetime]]:
    """What each call was given, in order; of those that ended well, if that is asked."""
    session.rollback()
    done = " AND ended_at IS NOT NULL" if ended else ""
    rows = session.execute(
        sa.text(f"SELECT value FROM public.execution WHERE task = :task{done} ORDER BY id"),  # noqa: S608
        {"task": task},
    )
    pairs = [json.loads(value) for value in rows.scalars()]
    return [
        (since and datetime.fromisoformat(since), until and datetime.fromisoformat(until)) for since, until in pairs
    ]


def steps(session: Session, task: str, *, ended: bool = False) -> list[tuple[int | None, int]]:
    """The same in steps."""

    def step(moment: datetime) -> int:
        return (moment - BEGIN) // STEP

    found = increments(session, task, ended=ended)
    return [(None if since is None else step(since), step(until)) for since, until in found]


def calls(session: Session, task: str) -> int:
    return len(increments(session, task))


def last_seen(session: Session, task: str) -> datetime | None:
    session.rollback()
    query = sa.text("SELECT value FROM tidemill.ctl_seen WHERE task = :task AND parameter = :parameter")
    found: datetime | None = session.execute(
        query, {"task": full_name(task), "parameter": PARAMETER}
    ).scalar_one_or_none()
    return found


def states(session: Session, task: str) -> list[str]:
    """Of its runs, in order."""
    session.rollback()
    query = sa.text("SELECT state::text FROM tidemill.run WHERE task = :task ORDER BY id")
    return list(session.execute(query, {"task": full_name(task)}).scalars())


def registered(session: Session, task: str) -> bool:
    session.rollback()
    query = sa.text("SELECT count(*) FROM tidemill.reactive_task WHERE name = :task AND removed_at IS NULL")
    return bool(session.execute(query, {"task": full_name(task)}).scalar_one())


def of_task(session: Session, task: str) -> Any:
    """Its row."""
    session.rollback()
    query = sa.text("SELECT * FROM tidemill.reactive_task WHERE name = :task")
    return session.execute(query, {"task": full_name(task)}).one()


def of_run(session: Session, task: str) -> Any:
    """The row of its last run."""
    session.rollback()
    query = sa.text("SELECT * FROM tidemill.run WHERE task = :task ORDER BY id DESC LIMIT 1")
    return session.execute(query, {"task": full_name(task)}).one()
