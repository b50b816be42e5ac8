"""Keeping a claim alive while its work runs: a thread of its own, on a connection of its own, made when first needed.

- Every third of the lease it moves `recovery_time` on. A child that cannot do so stops its work before the lease ends
  (`app.alarm`), also when this thread is the one that hangs.
- What a batch has claimed but not begun after `REST_SECONDS` goes back, so that no row waits behind a slow one while
  other workers are free.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy.engine import Engine, Row
from sqlalchemy.exc import SQLAlchemyError

from app import faults
from app.alarm import ClaimIsLost, alarm
from app.claims.hold import extend
from app.claims.model import Claimable, Key, PassKey, key_getter
from app.claims.taking import Claim
from app.db import new_engine, transaction
from app.errors import DatabaseError
from app.settings import settings

log = logging.getLogger(__name__)

REST_SECONDS = 1.0
TICK_SECONDS = 0.25
#: The part of a lease after which work that could not be extended is stopped.
STOP_AFTER = 0.85

Extend = Callable[[Any, PassKey, Sequence[Key], timedelta], set[Key]]


def _extend(
    model: type[Claimable], executor: Any, pass_key: PassKey, keys: Sequence[Key], lease: timedelta
) -> set[Key]:
    return extend(executor, model, pass_key, keys, lease)


class Holding:
    """What this process has claimed and not yet ended."""

    def __init__(
        self,
        model: type[Claimable],
        claim: Claim,
        lease: timedelta,
        give_back: Callable[[Any, Sequence[Row[Any]]], None],
        extend: Extend | None = None,
    ) -> None:
        self.model, self.pass_key, self.lease = model, claim.pass_key, lease.total_seconds()
        self._rest = deque(claim.rows)
        self._lock = threading.Lock()
        self._give_back = give_back
        self.extend: Extend = extend or partial(_extend, model)
        self.begun_at, self.extended_at = time.monotonic(), claim.asked
        self._key = key_getter(model)
        self.held: set[Key] = set(map(self._key, claim.rows))
        self.lost = False

    def prepare(self) -> None:
        """Nothing goes back before `begin`: what is claimed together is made ready together, which may take long, and
        would begin anew elsewhere."""
        self.begun_at = math.inf

    def begin(self) -> None:
        self.begun_at = time.monotonic()

    def next(self) -> Row[Any] | None:
        """None also where the claim is lost, or so nearly over that nothing must begin under it."""
        over = time.monotonic() > self.extended_at + self.lease * STOP_AFTER
        with self._lock:
            return self._rest.popleft() if self._rest and not self.lost and not over else None

    def hold_again(self, rows: Sequence[Row[Any]]) -> None:
        with self._lock:
            self.held.update(map(self._key, rows))

    def put_back(self, row: Row[Any]) -> None:
        with self._lock:
            self._rest.appendleft(row)

    def ended(self, rows: Sequence[Row[Any]]) -> None:
        with self._lock:
            self.held.difference_update(map(self._key, rows))

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
                ours = holding.extend(connection, holding.pass_key, keys, timedelta(seconds=holding.lease))
            # What ended between the two lines is not ours any more either, and not lost.
            if lost := set(holding.keys()) - ours:
                holding.lost = True
                if self._holding is holding:
                    alarm.now("lost", lambda: ClaimIsLost("another worker has it now"))
                log.warning("lost the claim on %s", ", ".join(str(key) for key in sorted(lost)))
            # Only now: until it is known what was lost, nothing may begin that an old deadline would refuse.
            holding.extended_at = asked
            if self._holding is holding:
                alarm.later("lease", asked + holding.lease * STOP_AFTER)
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
