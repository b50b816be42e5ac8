"""How visits end, several of one claim in one statement, and never waiting for strangers.

Each statement locks the rows that are still ours, in the order of their keys, and passes over those that somebody else
has locked; what it returns is what has ended. In exclusive mode a visit ends only while its guard is ours too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from operator import attrgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app import claims
from app.arrays import Array
from app.claims import Executor, PassKey
from app.jobs.endings import storable
from stages.model import GUARD, StageVisit
from stages.sql_arrays import array
from stages.statements import Form, completing, failing, prepared

ERROR_MOST, TRACE_MOST = 4_000, 20_000
#: Locks are taken in this order, which is that of the database's bytes.
_by_id = attrgetter("id")
BACKOFF, BACKOFF_MOST = timedelta(seconds=1), timedelta(minutes=5)


@dataclass(frozen=True)
class Place:
    """The queue of a stage."""

    kind: str
    stage: str
    #: S12: the kind is exclusive, and this is not its system stage.
    guarded: bool
    #: S16: of the low lane, and so is what comes of its visits.
    low: bool = False


@dataclass(slots=True)
class NewState:
    #: That the visit saw, and that it must still be; 0: there was none. None: the stage has no state.
    version: int | None
    #: None: there is none any more. `KEPT`: it stays as it is.
    type_url: str | None
    value: bytes | None


NO_STATE = NewState(None, None, None)


@dataclass(slots=True)
class Done:
    """A visit that ended well, and what comes of it."""

    id: str
    timer: datetime | None = None
    #: Of the chain that a timer at once continues.
    hops: int = 0
    chain: str | None = None
    state: NewState | None = None


@dataclass(slots=True)
class Offer:
    """Another stage that wants the entity as it is now; made only if the visit of the entity ends here."""

    id: str
    stage: str
    at: datetime
    hops: int = 0
    chain: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    id: str
    #: None: it did not fail, and keeps what it says of an earlier try.
    error: str | None
    traceback: str | None = None
    version: int | None = None
    state_version: int | None = None
    #: None: it is parked.
    again: timedelta | None = None
    charged: bool = True
    #: From now on it is handed out by itself.
    alone: bool = False


def backoff(attempts: int) -> timedelta:
    return min(BACKOFF_MOST, BACKOFF * float(2 ** min(attempts - 1, 20)))


def complete(
    executor: Executor,
    place: Place,
    pass_key: PassKey,
    done: Sequence[Done],
    offers: Sequence[Offer] = (),
    *,
    wait: bool = False,
) -> set[str]:
    """Ends visits; returns the ids of those that did. `wait`: for locks of others, as long as the caller's settings
    say; otherwise their rows are left."""
    done = sorted(done, key=_by_id)
    form, parameters = given(place, pass_key, done, offers, wait=wait)
    if isinstance(executor, Connection) and not wait:
        rows = prepared(form).execute(executor, parameters)
    else:
        rows = executor.execute(completing(form), parameters)
    return set(rows.scalars())


def given(
    place: Place, pass_key: PassKey, done: Sequence[Done], offers: Sequence[Offer], *, wait: bool
) -> tuple[Form, dict[str, Any]]:
    """The form of the statement that ends these visits, and its parameters."""
    form = Form(place.guarded, any(each.state is not None for each in done), bool(offers), wait)
    parameters: dict[str, Any] = {
        "p_kind": place.kind,
        "p_stage": place.stage,
        "p_pass_key": pass_key,
        "p_id": array([each.id for each in done]),
        "p_timer": _times([each.timer for each in done]),
        "p_hops": _numbers([each.hops for each in done]) if any(each.hops for each in done) else None,
        "p_chain": array([each.chain for each in done]) if any(each.chain for each in done) else None,
    }
    if form.states:
        states = [each.state or NO_STATE for each in done]
        parameters |= {
            "p_state_version": _numbers([each.version for each in states]),
            "p_type_url": array([each.type_url for each in states]),
            "p_value": array([None if each.value is None else "\\x" + each.value.hex() for each in states]),
        }
    if offers:
        parameters |= {
            "p_low": place.low,
            "p_offer_ids": array([each.id for each in offers]),
            "p_offer_stages": array([each.stage for each in offers]),
            "p_offer_times": _times([each.at for each in offers]),
            "p_offer_hops": _numbers([each.hops for each in offers]),
            "p_offer_chains": array([each.chain for each in offers]),
        }
    return form, parameters


def _times(moments: Sequence[datetime | None]) -> str | None:
    """Most visits leave no timer; no array at all reads as nulls."""
    return array([None if each is None else each.isoformat() for each in moments]) if any(moments) else None


def _numbers(numbers: Sequence[int | None]) -> str:
    return "{" + ",".join(["NULL" if each is None else str(each) for each in numbers]) + "}"


def failed(executor: Executor, place: Place, pass_key: PassKey, failures: Sequence[Failed]) -> set[str]:
    """Tries again later, or parks; with what was seen. Returns the ids of those that were still ours."""
    failures = sorted(failures, key=_by_id)
    parameters = {
        "p_kind": place.kind,
        "p_stage": place.stage,
        "p_pass_key": pass_key,
        "p_ids": array([each.id for each in failures]),
        "p_errors": array([each.error and storable(each.error)[:ERROR_MOST] for each in failures]),
        "p_traces": array([each.traceback and storable(each.traceback)[-TRACE_MOST:] for each in failures]),
        "p_versions": _numbers([each.version for each in failures]),
        "p_state_versions": _numbers([each.state_version for each in failures]),
        "p_seconds": array([None if each.again is None else str(each.again.total_seconds()) for each in failures]),
        "p_charged": array([str(each.charged) for each in failures]),
        "p_alone": array([str(each.alone) for each in failures]),
    }
    return {row.entity_id for row in executor.execute(failing(place.guarded), parameters)}


def give_back(
    executor: Executor, place: Place, pass_key: PassKey, ids: Sequence[str], delay: timedelta = timedelta(0)
) -> set[str]:
    """What was not begun, or could not be ended here, waits as before, at no charge."""
    return failed(executor, place, pass_key, [Failed(each, None, again=delay, charged=False) for each in ids])


def extend(executor: Executor, pass_key: PassKey, keys: Sequence[Any], lease: timedelta, *, guarded: bool) -> set[Any]:
    """Keeps visits, all of one kind, and the guards of their entities (`Holding.extend`). Where the guard has passed to
    somebody else, the visit is lost, though its row is still ours: the sweep has not come by yet."""
    ours = claims.extend(executor, StageVisit, pass_key, keys, lease)
    if not guarded:
        return ours
    mine = sa.and_(
        GUARD.c.kind == keys[0][0],
        GUARD.c.pass_key == pass_key,
        GUARD.c.entity_id == sa.any_(sa.cast([key[1] for key in keys], Array(sa.Text))),
    )
    # One that a stranger has locked, as for a deletion, must not cost the others theirs.
    free = sa.select(GUARD.c.kind, GUARD.c.entity_id).where(mine).order_by(GUARD.c.entity_id)
    held = free.with_for_update(skip_locked=True).cte("held")
    moved = (
        sa.update(GUARD)
        .where(GUARD.c.kind == held.c.kind, GUARD.c.entity_id == held.c.entity_id)
        .values(until=sa.func.now() + lease)
        .returning(GUARD.c.entity_id)
        .cte("moved")
    )
    # If it is over, whoever has locked it may be taking it just now.
    holds = sa.select(GUARD.c.entity_id).where(mine, GUARD.c.until > sa.func.now())
    guards = set(executor.execute(sa.union(holds, sa.select(moved.c.entity_id))).scalars())
    return {key for key in ours if key[1] in guards}


def warm_up() -> None:
    for guarded, states, offers in product((True, False), repeat=3):
        prepared(Form(guarded, states, offers, wait=False))
