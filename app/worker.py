"""What the main process of a worker does beside Celery: reports, rings for its own queues, stops in good order.

J4: a worker finds work by polling when every notification was lost, also where no beat and no scheduler runs.
J8: on SIGTERM no new work is taken; what runs may end within the grace, then it is handed back.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
from typing import Any

import sqlalchemy as sa
from celery import bootsteps, signals
from click import ClickException
from sqlalchemy.exc import SQLAlchemyError

from app import claims, db, dispatch, registration, schema, timings, workers
from app.claims.model import Claimable, is_running
from app.db import autocommit, transaction
from app.doorbell import Publisher
from app.errors import DatabaseError, NotMigrated
from app.registry import registry
from app.settings import settings
from app.stopping import stopping
from app.stopwatch import stopwatch

log = logging.getLogger(__name__)

DRAIN_SECONDS = 0.5
POOLS = ("celery.concurrency.prefork", "celery.concurrency.solo")


class Service(bootsteps.StartStopStep):
    """A thread of the worker's main process, from start to stop."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, drain: bool = False, **options: Any) -> None:  # noqa: FBT001
        super().__init__(parent, **options)
        if parent.pool_cls.__module__ not in POOLS:
            raise ClickException("Tidemill runs on the prefork pool, which alone can stop a task: leave out -P")
        self.drain = drain
        # Its children are forked later.
        stopwatch.open()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._written = False
        self._alive: set[int] = set()

    def start(self, parent: Any) -> None:
        stopping.clear()
        # Tickets may come as soon as this returns. Some ring for what no row waits for yet.
        stopping.hold(not _fits())
        signals.worker_shutting_down.connect(lambda **_: self._stop_gracefully(parent), weak=False)
        self._thread = threading.Thread(target=self._run, args=(parent,), name="tidemill-worker", daemon=True)
        self._thread.start()

    def stop(self, parent: Any) -> None:  # noqa: ARG002
        self._over.set()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self, worker: Any) -> None:
        publisher: Publisher | None = None
        while not self._over.is_set():
            try:
                if not self._written:
                    registration.write(worker.app)
                    self._written = True
                    stopping.hold(False)
                # Both can be changed from outside while it runs.
                queues = [str(name) for name in worker.app.amqp.queues.consume_from]
                slots = getattr(worker.pool, "num_processes", worker.concurrency)
                with autocommit() as connection:
                    workers.beat(connection, worker.hostname, queues, slots, os.getpid())
                    timings.hand_in(connection)
                self._mourn(worker)
                if not stopping.is_set():
                    publisher = publisher or Publisher()
                    report = dispatch.run_once(queues=queues, publisher=publisher)
                    if self.drain and not report.waiting and not self._busy(worker.hostname):
                        log.warning("nothing is ready any more: draining is done")
                        os.kill(os.getpid(), signal.SIGTERM)
                        self.drain = False
            except NotMigrated as error:
                log.error("%s", error)
            except (SQLAlchemyError, DatabaseError) as error:
                log.warning("cannot report to the database: %s", error)
            except Exception:
                # The worker lives on without its reports; they must not end for good because one went wrong.
                log.exception("the report of this worker failed")
            # Workers that were started together must not poll together.
            self._over.wait(DRAIN_SECONDS if self.drain else workers.BEAT_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311
        self._leave(worker)

    def _mourn(self, worker: Any) -> None:
        """Nobody knows better than its parent that a child is dead: what it held is put back with the next sweep,
        without waiting for the end of its lease. Also one that came and went between two looks."""
        alive = set(_children(worker.pool))
        if alive == self._alive:
            return
        for table in registry.waiting:
            with transaction() as session:
                holders = set(session.execute(_holders(table.model, worker.hostname)).scalars())
                # Read after them: a child that has come meanwhile lives.
                living = {workers.child_name(worker.hostname, pid) for pid in _children(worker.pool)}
                if dead := sorted(holders - living):
                    claims.orphan(session, table.model, dead)
        # Only now: where the database was away, they are mourned the next time.
        self._alive = alive

    def _busy(self, hostname: str) -> bool:
        with autocommit() as connection:
            return any(connection.execute(_held(table.model, hostname)).first() for table in registry.waiting)

    def _leave(self, worker: Any) -> None:
        try:
            with autocommit() as connection:
                workers.leave(connection, worker.hostname, os.getpid())
        except (SQLAlchemyError, DatabaseError):
            log.warning("could not say goodbye to the database: this worker is forgotten within %s", workers.GONE)
        db.dispose()

    def _stop_gracefully(self, worker: Any) -> None:
        """Called within a signal handler: nothing here may wait."""
        stopping.set()
        timer = threading.Timer(settings().grace.total_seconds(), self._hand_back, (worker,))
        timer.daemon = True
        timer.start()

    def _hand_back(self, worker: Any) -> None:
        log.warning("the grace is over: what still runs is handed back")
        stopping.set_over()
        for child in _children(worker.pool):
            try:
                os.kill(child, signal.SIGALRM)
            except ProcessLookupError:
                continue


@signals.worker_shutdown.connect(weak=False)
def _last_word(**_: Any) -> None:
    """Its children have ended, and have measured until then."""
    try:
        with autocommit() as connection:
            timings.hand_in(connection)
    except (SQLAlchemyError, DatabaseError) as error:
        log.warning("could not tell the database how long the last work took: %s", error)


def _fits() -> bool:
    """Whether the schema is known to be that of this release, or later. If not, the thread says why and looks again."""
    try:
        with transaction() as session:
            schema.refuse_older(session)
    except (SQLAlchemyError, DatabaseError):
        return False
    return True


def _held(model: type[Claimable], hostname: str) -> sa.Select[Any]:
    mine = model.claimed_by.startswith(hostname + "/", autoescape=True)
    return sa.select(model.queue).where(is_running(model), mine).limit(1)


def _holders(model: type[Claimable], hostname: str) -> sa.Select[Any]:
    """The children of this very worker that hold something."""
    ours = model.claimed_by.startswith(f"{hostname}/", autoescape=True)
    this = model.claimed_by.endswith(f".{workers.INCARNATION}", autoescape=True)
    return sa.select(model.claimed_by).distinct().where(is_running(model), ours, this)


def _children(pool: Any) -> list[int]:
    processes = getattr(getattr(pool, "_pool", None), "_pool", None)
    return [os.getpid()] if processes is None else [process.pid for process in processes]
