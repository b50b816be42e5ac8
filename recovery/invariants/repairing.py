"""What violates the catalogue is repaired, batch by batch, each in a transaction of its own.

Promises:
- What the detector saw is looked at again under lock; a second run changes nothing (R7).
- One that cannot be repaired stops none of the others (R3); what somebody holds is left to him.
- Each repair is recorded and counted in the transaction that makes it (R7).
- No work is lost: in doubt a row goes back to where the normal claim finds it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from app.db import transaction
from app.errors import Unavailable
from recovery import record
from recovery.invariants.entry import Done, Invariant, Key
from recovery.invariants.looking import MOST, look
from recovery.record import Repaired

log = logging.getLogger(__name__)

BATCH = 200
LOCK_TIMEOUT = "1s"


@dataclass
class Repairs:
    invariant: Invariant
    repaired: int = 0
    #: Still there: held by somebody, in work, or such as nobody can repair.
    left: set[Key] = field(default_factory=set)
    #: The last error of one that could not be repaired.
    failed: str | None = None


def repair(invariant: Invariant, told: Callable[[int], None] = lambda _: None) -> Repairs:
    """Until nothing is found that was not tried before. `told`: how many have been repaired so far."""
    done = Repairs(invariant)
    if invariant.repair is None:
        return done
    while True:
        found = look(invariant, MOST + len(done.left))
        keys = [key for key in found.keys if key not in done.left]
        if not keys:
            done.left &= set(found.keys)
            return done
        for first in range(0, len(keys), BATCH):
            _batch(done, keys[first : first + BATCH])
            told(done.repaired)


def _batch(done: Repairs, keys: Sequence[Key]) -> None:
    try:
        _apply(done, keys)
    except Unavailable:
        raise
    except Exception:
        # R3: one of them must not stop the rest.
        log.exception("'%s' is repaired one by one", done.invariant.name)
        for key in keys:
            _alone(done, key)


def _alone(done: Repairs, key: Key) -> None:
    try:
        _apply(done, [key])
    except Unavailable:
        raise
    except Exception as error:
        log.exception("'%s' cannot be repaired: %s", done.invariant.name, done.invariant.subject(key))
        done.left.add(key)
        done.failed = f"{type(error).__name__}: {error}".partition("\n")[0]


def _apply(done: Repairs, keys: Sequence[Key]) -> None:
    invariant = done.invariant
    if invariant.repair is None:
        return
    with transaction() as session:
        session.execute(sa.select(sa.func.set_config("lock_timeout", LOCK_TIMEOUT, True)))
        made = invariant.repair(session, keys)
        if not made.recorded:
            record.record(session, list(_told(invariant, made)))
    made.after()
    done.repaired += len(made.actions)
    # Also what was repaired: where it is found once more, it is not tried for ever.
    done.left.update(keys)


def _told(invariant: Invariant, made: Done) -> Iterable[Repaired]:
    for key, action in made.actions.items():
        yield Repaired(invariant.domain, invariant.subject(key), invariant.finding, action)
