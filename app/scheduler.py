"""`celery -A app scheduler`: makes the passes in a loop, as leader of each duty or in readiness to become it.

Any number may run. This is the one place that loops and handles signals; what a pass does is a plain function.
"""

from __future__ import annotations

import heapq
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

import click
import sqlalchemy as sa
from celery.bin.base import CeleryCommand, handle_preload_options
from sqlalchemy.exc import SQLAlchemyError

from app import dispatch, logs, registration, shares
from app.db import transaction
from app.doorbell import Publisher
from app.duties import Duties
from app.duties import duties as own_duties
from app.errors import DatabaseError
from app.hints import Hints, Stop
from app.registry import Pass, registry
from app.settings import settings
from app.shares import Shards
from stages.model import Sharding
from triggers.service import own as own_service

log = logging.getLogger(__name__)

#: Dispatch is what waiting work waits for when its bell was lost.
POLL = timedelta(milliseconds=50)
#: What is saved is published so soon.
RELAY = timedelta(milliseconds=100)
STANDBY_SECONDS = 0.5
AWAY_SECONDS, AWAY_MOST_SECONDS = 0.5, 5.0
#: How often a scheduler says that it lives.
REPORT_SECONDS = 1.0
#: A pass that takes long is made less often: it never takes more than this part of the time.
BUSY = 0.2
#: How long full batches of one pass may follow each other before the other passes have their turn.
AT_ONCE_SECONDS = 0.2
#: How long a pass that is made apart may take to end.
JOIN_SECONDS = 5.0
#: What was kept in mind in an earlier time as leader is worth nothing.
TAKEN = {"reactive_service": own_service.forget}


@dataclass(order=True)
class Turn:
    at: float
    each: Pass = field(compare=False)


class Loop:
    """Passes by their time, until told to stop."""

    def __init__(
        self,
        passes: list[Pass],
        duties: Duties,
        stop: Stop | threading.Event,
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool] | None = None,
        taken: Mapping[str, Callable[[], None]] | None = None,
    ) -> None:
        self._duties, self._stop, self._monotonic = duties, stop, monotonic
        #: Until a time is over; True: something is to be made earlier.
        self._wait = wait or (lambda seconds: stop.wait(seconds) and False)
        #: Called when this process becomes the leader of a duty, also once more.
        self._taken = taken or {}
        self._turns = [Turn(monotonic(), each) for each in passes]
        heapq.heapify(self._turns)
        #: By which session of the duties.
        self._leading: dict[str, int] = {}
        self._away = AWAY_SECONDS

    def run(self) -> None:
        while not self._stop.is_set():
            turn = self._turns[0]
            if (wait := turn.at - self._monotonic()) > 0:
                if self._wait(wait):
                    self._hurry()
                continue
            try:
                pause = self._make(turn.each)
                self._away = AWAY_SECONDS
            except (SQLAlchemyError, DatabaseError) as error:
                log.warning("pass %s failed, the next try is in %.1f s: %s", turn.each.name, self._away, error)
                self._stop.wait(self._away)
                self._away = min(self._away * 2, AWAY_MOST_SECONDS)
                pause = 0.0
            except Exception:
                # One pass that is broken must not end the others.
                log.exception("pass %s failed", turn.each.name)
                pause = turn.each.every.total_seconds()
            heapq.heapreplace(self._turns, Turn(self._monotonic() + pause, turn.each))

    def _hurry(self) -> None:
        now = self._monotonic()
        for turn in self._turns:
            if turn.each.hinted and turn.each.name in self._leading:
                turn.at = min(turn.at, now)
        heapq.heapify(self._turns)

    def _make(self, each: Pass) -> float:
        if each.shared:
            return self._timed(each)
        leads = self._duties.hold(each.name)
        # Whoever has led by another session may have been without the duty in between.
        session = self._duties.session if leads else None
        if session != self._leading.get(each.name):
            log.info("%s %s", "leader of" if leads else "no longer leader of", each.name)
            self._leading.pop(each.name, None)
            if session is not None:
                self._leading[each.name] = session
                self._taken.get(each.name, _nothing)()
        if not leads:
            return max(STANDBY_SECONDS, each.every.total_seconds())
        return self._timed(each)

    def _timed(self, each: Pass) -> float:
        begun = self._monotonic()
        with logs.about(duty=each.name):
            report = each.run(AT_ONCE_SECONDS)
            took = self._monotonic() - begun
            log.debug("%s: %s in %.1f ms", each.name, report, took * 1000)
        # What waits is not made to wait; the other passes have had their turn before it comes again.
        if getattr(report, "more", False):
            return 0.0
        # Nobody else waits for what is made apart.
        return max(each.every.total_seconds(), 0.0 if each.apart else took / BUSY)


def _nothing() -> None:
    pass


class Share:
    """Dispatch of what is cut into shards: of those that are this scheduler's (S13)."""

    def __init__(self, publisher: Publisher, name: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._publisher, self.name, self._monotonic = publisher, name, monotonic
        self._reported = -REPORT_SECONDS
        self._alone = True
        self.shards: Shards | None = None

    def run_once(self) -> dispatch.Report:
        if self._monotonic() - self._reported >= REPORT_SECONDS:
            self._report()
        if self.shards is None and not self._alone:
            return dispatch.Report()
        shards = None if self._alone else self.shards
        return dispatch.run_once(publisher=self._publisher, part=dispatch.Part.SHARDED, shards=shards)

    def _report(self) -> None:
        with transaction() as session:
            live = shares.report(session, self.name)
            count = session.execute(sa.select(Sharding.shards)).scalar_one()
        self._reported = self._monotonic()
        before, self._alone = (self._alone, self.shards), live == [self.name]
        self.shards = shares.share(self.name, live, count) if self.name in live else None
        if before != (self._alone, self.shards):
            log.info("shards of this scheduler: %s", "all" if self._alone else self.shards or "none")

    def leave(self) -> None:
        try:
            with transaction() as session:
                shares.leave(session, self.name)
        except (SQLAlchemyError, DatabaseError):
            log.warning("could not say goodbye to the database: its shards go to others in %s", shares.GONE)


def passes(share: Share | None = None) -> list[Pass]:
    """The passes of the registry; dispatch as often as this service can, over a connection that it keeps."""
    publisher = Publisher()
    share = share or Share(publisher, shares.own_name())
    whole = partial(dispatch.run_once, publisher=publisher, part=dispatch.Part.WHOLE)
    quick: dict[str, dict[str, Any]] = {
        "dispatch": {"run_once": whole, "interval": POLL},
        "relay": {"interval": RELAY},
    }
    own = Pass("dispatch_shards", share.run_once, POLL, beat=False, shared=True)
    known = [replace(each, **quick.get(each.name, {})) for each in registry.passes.values() if each.scheduler]
    return [*known, own]


class Apart:
    """Passes in threads, each with duties of its own: a connection is not shared between threads."""

    def __init__(self, passes: list[Pass], stop: Stop | threading.Event) -> None:
        self._duties = [Duties() for _ in passes]
        self._threads = [
            threading.Thread(target=Loop([each], duties, stop).run, name=f"tidemill-{each.name}", daemon=True)
            for each, duties in zip(passes, self._duties, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """After the order to stop. What waits for a broker is not waited for: it does no harm."""
        for thread, duties in zip(self._threads, self._duties, strict=True):
            thread.join(JOIN_SECONDS)
            if not thread.is_alive():
                duties.drop()


@click.command(cls=CeleryCommand)
@click.option("--seconds", type=float, default=None, help="Stop after this time (for tests and trials).")
@click.pass_context
@handle_preload_options
def scheduler(ctx: click.Context, seconds: float | None) -> None:
    """Tidemill: rings for what waits, fires periodic jobs, sweeps. Any number may run; one leads each duty."""
    logs.set_up("scheduler", "%(asctime)s %(levelname)s scheduler: %(message)s", settings().log_level)
    app: Any = ctx.obj.app
    app.loader.import_default_modules()
    # The doorbell's thread would wait five milliseconds for its turn beside a loop that computes.
    sys.setswitchinterval(0.0005)
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if seconds is not None:
        threading.Timer(seconds, stop.set).start()
    _register(app, stop)
    log.info("scheduler runs: %s", ", ".join(registry.passes))
    hints = Hints(stop)
    share = Share(Publisher(), shares.own_name())
    found = passes(share)
    apart = Apart([each for each in found if each.apart], stop)
    Loop([each for each in found if not each.apart], own_duties, stop, wait=hints.wait, taken=TAKEN).run()
    apart.join()
    share.leave()
    own_duties.drop()
    hints.close()
    log.info("scheduler stopped")


def _register(app: Any, stop: Stop) -> None:
    while not stop.is_set():
        try:
            registration.write(app)
        except (SQLAlchemyError, DatabaseError) as error:
            log.warning("waiting for the database: %s", error)
            stop.wait(AWAY_MOST_SECONDS / 5)
        else:
            return
