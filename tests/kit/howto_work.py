"""A worker within a process of the tests: what is declared there is taken up, and what is ready is done."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import sqlalchemy as sa

from app import db, registration
from app.celery import app as celery_app
from app.jobs import schedules
from app.tasks import serve
from tests.kit.waiting import pause
from tidemill import transaction
from triggers import polling

HOST = "howto@here"


def take_up() -> None:
    """What a service does with the modules that it has imported."""
    celery_app.finalize()
    registration.mix_in(celery_app)
    queues = celery_app.amqp.queues
    for name in registration.queues_of(celery_app):
        queues.select_add(queues.new_missing(name))
    registration.write(celery_app)
    schedules.loading(False)


def work() -> None:
    """Until a whole round has found nothing that is ready."""
    while polling.run_once().started or sum(_served(name) for name in registration.queues_of(celery_app)):
        pass


def _served(queue: str) -> int:
    word = serve(celery_app, queue, {"queue": queue, "take": 100}, HOST).split()[0]
    return int(word) if word.isdigit() else 0


@contextmanager
def jobs_beside(prepare: Callable[[], object]) -> Iterator[None]:
    """Another process does the jobs meanwhile, and is prepared before it begins."""
    db.dispose()
    read, write = os.pipe()
    worker = os.fork()
    if not worker:
        prepare()
        take_up()
        os.write(write, b".")
        while True:
            work()
            pause(0.05)
    os.close(write)
    try:
        with open(read, "rb") as ready:
            assert ready.read(1), "the worker has ended"
        yield
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)


def outcomes(ids: Sequence[int]) -> list[str]:
    query = sa.text("select outcome::text from tidemill.job_log where job_id = any(:ids) order by job_id")
    with transaction() as session:
        return list(session.scalars(query, {"ids": list(ids)}))
