"""Keeping a claim alive while its work runs: a thread of its own, on a connection of its own, made when first needed.

- Every third of the lease it moves `recovery_time` on. A child that cannot do so stops its work before the lease ends
  (`app.alarm`), also when this thread is the one that hangs.
- What a batch has claimed but not begun after `REST_SECONDS` goes back, so that no row waits behind a slow one while
  other workers are free.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy.engine import Engine, Row
from sqlalchemy.exc import SQLAlchemyError

from app import faults
from app.alarm import ClaimIsLost, alarm
from app.claims.hold import extend
from app.claims.model import Claimable, Key, PassKey, key_of
from app.db import new_engine, transaction
from app.errors import DatabaseError
from app.settings import settings

log = logging.getLogger(__name__)

REST_SECONDS = 1.0
TICK_SECONDS = 0.25
#: The part of a lease after which work that could not be extended is stopped.
STOP_AFTER = 0.85


class Holding:
    """What this process has claimed and not yet ended."""

    def __init__(
        self,
        model: type[Claimable],
        pass_key: PassKey,
        rows: Sequence[Row[Any]],
        lease: timedelta,
        give_back: Callable[[Any, Sequence[Row[Any]]], None],
    ) -> None:
        self.model, self.pass_key, self.lease = model, pass_key, lease.total_seconds()
        self._rest = deque(rows)
        self._lock = threading.Lock()
        self._give_back = give_back
        self.begun_at = self.extended_at = time.monotonic()
        self.held: set[Key] = {key_of(model, row) for row in rows}
        self.lost = False

    def next(self) -> Row[Any] | None:
        with self._lock:
            return self._rest.popleft() if self._rest and not self.lost else None

    def hold_again(self, rows: Sequence[Row[Any]]) -> None:
        with self._lock:
            self.held |= {key_of(self.model, row) for row in rows}

    def put_back(self, row: Row[Any]) -> None:
        with self._lock:
            self._rest.appendleft(row)

    def ended(self, rows: Sequence[Row[Any]]) -> None:
        with self._lock:
            self.held -= {key_of(self.model, row) for row in rows}

    def let_go(self, within: Callable[[], AbstractContextManager[Any]] = transaction) -> None:
        """Gives back what has not begun, in a transaction of its own; held on to where that fails."""
        with self._lock:
            rest = list(self._rest)
            self._rest.clear()
        if not rest:
            return
        try:
            with within() as tx:
                self._give_back(tx, rest)
        except BaseException:
            with self._lock:
                self._rest.extendleft(reversed(rest))
            raise
        faults.reach("give_back.committed")
        self.ended(rest)

    def keys(self) -> list[Key]:
        with self._lock:
            return sorted(self.held)


class Keeper:
    def __init__(self) -> None:
        self._holding: Holding | None = None
        self._active = threading.Event()
        self._thread: threading.Thread | None = None
        self._engine: Engine | None = None

    @contextmanager
    def keeping(self, holding: Holding) -> Iterator[Holding]:
        self._holding = holding
        alarm.set("lease", holding.extended_at + holding.lease * STOP_AFTER, lambda: ClaimIsLost("the lease ends"))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tidemill-keeper", daemon=True)
            self._thread.start()
        if not self._active.is_set():
            self._active.set()
        try:
            yield holding
        finally:
            self._holding = None
            alarm.clear("lease")
            alarm.clear("lost")

    def _run(self) -> None:
        while True:
            self._active.wait()
            holding = self._holding
            if holding is None:
                self._active.clear()
                if self._holding is None:
                    continue
                self._active.set()
            else:
                try:
                    self._look_after(holding)
                except (SQLAlchemyError, DatabaseError) as error:
                    log.warning("cannot keep the claim %s: %s", holding.pass_key, error)
                except Exception:
                    # Without this thread every later claim of the process would be lost.
                    log.exception("cannot keep the claim %s", holding.pass_key)
            time.sleep(min(TICK_SECONDS, settings().lease.total_seconds() / 12))

    def _look_after(self, holding: Holding) -> None:
        now = time.monotonic()
        if now - holding.extended_at > holding.lease / 3 and (keys := holding.keys()):
            asked = time.monotonic()
            with self._own_engine().begin() as connection:
                ours = extend(connection, holding.model, holding.pass_key, keys, timedelta(seconds=holding.lease))
            holding.extended_at = asked
            if self._holding is holding:
                alarm.later("lease", asked + holding.lease * STOP_AFTER)
            # What ended between the two lines is not ours any more either, and not lost.
            if lost := set(holding.keys()) - ours:
                holding.lost = True
                log.warning("lost the claim on %s", ", ".join(str(key) for key in sorted(lost)))
                if self._holding is holding:
                    alarm.now("lost", lambda: ClaimIsLost("another worker has it now"))
        if now - holding.begun_at > REST_SECONDS:
            holding.let_go(self._own_engine().begin)

    def _own_engine(self) -> Engine:
        if self._engine is None:
            # Whatever it is that blocks, a stranger's lock or a slow server, must not cost what it keeps.
            limit = int(settings().lease.total_seconds() * 1000 / 6)
            options = f"-c lock_timeout={min(500, limit)} -c statement_timeout={limit}"
            self._engine = new_engine(
                settings().resolved_database_url(), pool_size=1, name="tidemill-keeper", options=options
            )
        return self._engine


keeper = Keeper()


def _forked() -> None:
    global keeper
    keeper = Keeper()


os.register_at_fork(after_in_child=_forked)
