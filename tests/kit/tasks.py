"""A user's module: plain Celery tasks. Each notes its executions in the table `public.execution` of the database."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from celery import shared_task
from celery.exceptions import SoftTimeLimitExceeded

from app.alarm import Stopped
from app.db import transaction
from app.jobs.current import running_job
from tests.kit import faults
from tests.kit.waiting import pause, wait_for_file
from tidemill import Call, batched, this_job

log = logging.getLogger(__name__)
faults.install_from(os.environ)

_BEGUN = sa.text(
    "INSERT INTO public.execution (task, value, job_id, attempt, pid) "
    "VALUES (:task, :value, :job_id, :attempt, :pid) RETURNING id"
)
_ENDED = sa.text("UPDATE public.execution SET ended_at = clock_timestamp() WHERE id = :id")


@contextmanager
def noted(task: str, value: object) -> Iterator[None]:
    """The row is there when the body begins, and says when it ended well."""
    job = running_job()
    row = {
        "task": task,
        "value": str(value),
        "job_id": job.id if job else None,
        "attempt": job.attempt if job else None,
        "pid": os.getpid(),
    }
    with transaction() as session:
        execution = session.execute(_BEGUN, row).scalar_one()
    yield
    with transaction() as session:
        session.execute(_ENDED, {"id": execution})


@shared_task
def noop() -> None:
    """Touches nothing."""


@shared_task
def say(value: Any) -> None:
    log.info("said %r", value)


@shared_task
def record(value: Any = "") -> Any:
    with noted("record", value):
        return value


@shared_task
def append(path: str, value: str) -> None:
    """To a file, in one write: also where no database is."""
    with Path(path).open("ab") as out:
        out.write(f"{value}\n".encode())


@shared_task
def sleep_for(seconds: float, value: Any = "") -> None:
    with noted("sleep_for", value):
        pause(seconds)


@shared_task
def stay_for(path: str, value: Any = "") -> None:
    """Until this file is there."""
    with noted("stay_for", value):
        wait_for_file(path)


@shared_task(max_retries=0)
def fail(value: Any = "") -> None:
    with noted("fail", value):
        raise RuntimeError(f"failed on {value!r}")


@shared_task(autoretry_for=(ConnectionError,), retry_backoff=False, default_retry_delay=0, max_retries=5)
def flaky(failures: int, value: Any = "") -> str:
    """Fails so many times, then is done."""
    with noted("flaky", value):
        if this_job().attempt <= failures:
            raise ConnectionError(f"attempt {this_job().attempt} fails")
    return "done"


@shared_task(bind=True, max_retries=2, default_retry_delay=0)
def asks_again(self: Any, value: Any = "") -> None:
    with noted("asks_again", value):
        raise self.retry(exc=RuntimeError("not yet"), countdown=0)


@shared_task(max_retries=2)
def crash(value: Any = "", marker: str | None = None) -> None:
    """Its process dies as by a power failure: every time, or only the first, with a marker."""
    with noted("crash", value):
        if marker is not None:
            if Path(marker).exists():
                return
            Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)


@shared_task
@batched(size=100)
def together(calls: list[Call]) -> None:
    """Many jobs in one call; a call with the argument "bad" fails."""
    for call in calls:
        with noted("together", f"{call.args[0]}/{len(calls)}"):
            if call.args[0] == "bad":
                raise ValueError("one of them is bad")


@shared_task
def in_transaction(value: Any = "") -> None:
    """Its effect commits with the end of the job, or not at all."""
    with this_job().transaction() as session:
        row = {
            "task": "in_transaction",
            "value": str(value),
            "job_id": this_job().id,
            "attempt": this_job().attempt,
            "pid": os.getpid(),
        }
        session.execute(_BEGUN, row)


@shared_task(time_limit=1, max_retries=1)
def too_long(value: Any = "") -> None:
    with noted("too_long", value):
        pause(120)


@shared_task(soft_time_limit=1, max_retries=0)
def soft_limit(value: Any = "") -> str:
    try:
        with noted("soft_limit", value):
            pause(120)
    except SoftTimeLimitExceeded:
        return "stopped softly"
    return "never stopped"


@shared_task
def stubborn(seconds: float, value: Any = "") -> None:
    """Swallows whatever stops it, once, and goes on."""
    with noted("stubborn", value):
        try:
            pause(seconds)
        except Stopped:
            pause(seconds)


@shared_task
def stand_still(seconds: float) -> None:
    """Touches no database."""
    pause(seconds)


@shared_task
def steal_then_commit(value: Any = "") -> None:
    """Another claim takes the job while it works."""
    with transaction() as session:
        session.execute(
            sa.text("UPDATE tidemill.job SET pass_key = gen_random_uuid() WHERE id = :id"), {"id": this_job().id}
        )
    with this_job().transaction() as session:
        row = {"task": "steal", "value": str(value), "job_id": this_job().id, "attempt": 1, "pid": os.getpid()}
        session.execute(_BEGUN, row)
