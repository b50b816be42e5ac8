"""Saving how work ended, while the claim on it holds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, OperationalError

from app import faults
from app.claims.keeper import STOP_AFTER, Holding
from app.db import transaction
from app.errors import ClaimLost, Unavailable

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.2
#: How long an ending waits for a stranger's open transaction that is in its way; then the sweep ends it.
BLOCKED_SECONDS, LOCK_TIMEOUT = 5.0, "500ms"


def save(
    holding: Holding,
    what: str,
    write: Callable[[Any], bool],
    within: Callable[[], Any] = transaction,
    *,
    patient: bool = False,
) -> bool:
    """Tries until the lease is nearly over: a database that is away for a moment must not cost finished work.
    What is one statement is a transaction by itself (`within=autocommit`), and a round trip instead of three.
    Whether it was saved: `write` says whether the claim still held. `patient`: however long somebody else is in its
    way, for as long as the claim can be kept."""
    begun = time.monotonic()
    while True:
        until = holding.extended_at + holding.lease * STOP_AFTER
        try:
            with within() as tx:
                if within is transaction:
                    tx.execute(sa.select(sa.func.set_config("lock_timeout", LOCK_TIMEOUT, True)))
                ours = write(tx)
                faults.reach("finish.before_commit")
            faults.reach("finish.committed")
        except ClaimLost as lost:
            log.warning("%s", lost)
            return False
        except (Unavailable, IntegrityError, OperationalError) as error:
            # Of a job: a newer one with the same key has come in between, or is about to; the next try finds it.
            if not isinstance(error, Unavailable) and not patient:
                until = min(until, begun + BLOCKED_SECONDS)
            if time.monotonic() > until:
                log.warning("could not save the end of %s: %s", what, error)
                return False
            time.sleep(PAUSE_SECONDS)
        else:
            if not ours:
                log.warning("lost the claim on %s: what came late was not saved", what)
            return ours
