"""What holds of operations and their items (R9): that each item is done once, and that an operation ends when its items
have.

An operation that is put right in what it is over, or in whether it goes on, is paused and says why: whoever has started
it decides.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import array

from app.clock import Rate
from recovery.findings import Verdict
from recovery.invariants.entry import OPERATION as DOMAIN
from recovery.invariants.entry import Done, Invariant, Key, Repair, by_keys, selecting
from recovery.invariants.setting import changed, setting
from recovery.operations.model import ITEM, LIVE, OPERATION, ItemState, OperationState
from recovery.operations.order import Kind
from recovery.operations.starting import RATE

_C = OPERATION.c
_NOW = sa.func.clock_timestamp()
_mine = ITEM.c.operation_id == _C.id
_waits = ITEM.c.state == sa.literal_column(f"'{ItemState.WAITING}'")
_running = _C.state == OperationState.RUNNING
_endless = _C.rate == sa.literal_column("'Infinity'::float8")
_aimless = sa.or_(_C.rate <= 0, _C.rate == sa.literal_column("'NaN'::float8"), _endless)
_unknown = sa.and_(LIVE, _C.kind.not_in([kind.value for kind in Kind]))
#: No rate is slower than one item a day.
_far = sa.and_(LIVE, _running, _C.next_at > sa.func.now() + sa.text("interval '2 days'"))


def _items(*conditions: Any) -> Any:
    return sa.select(sa.func.count()).where(_mine, *conditions).correlate(OPERATION).scalar_subquery()


_ENDS = {"done": ItemState.DONE, "failed": ItemState.FAILED, "skipped": ItemState.SKIPPED}
_counted = {name: _items(ITEM.c.state == state) for name, state in _ENDS.items()}
_by_state = (sa.func.count().filter(ITEM.c.state == state) for state in _ENDS.values())
#: All that it has, and those that have ended, read once.
_has = sa.select(array([sa.func.count(), *_by_state])).where(_mine).correlate(OPERATION).scalar_subquery()
_lost = sa.and_(LIVE, _items() != _C.total)
_miscounted = sa.and_(LIVE, _has != array([_C.total, _C.done, _C.failed, _C.skipped]), _items() == _C.total)
_waiting = sa.exists().where(_mine, _waits).correlate(OPERATION)
_left = sa.and_(_C.state == OperationState.DONE, _waiting)
_over = sa.and_(LIVE, ~_waiting)
_late = sa.and_(_running, _C.next_at < sa.func.now() - sa.text("interval '1 minute'"))
_stopped = sa.and_(_C.state == OperationState.PAUSED, _C.why.is_not(None))
_paused = {"state": OperationState.PAUSED, "ended_at": None}


def _orphans() -> sa.Select[Any]:
    """By one index probe for each operation that items name."""
    first = sa.select(ITEM.c.operation_id).order_by(ITEM.c.operation_id).limit(1)
    named = sa.select(first.subquery()).cte("named", recursive=True)
    after = ITEM.c.operation_id > named.c.operation_id
    following = sa.select(ITEM.c.operation_id).where(after).order_by(ITEM.c.operation_id).limit(1).lateral("following")
    named = named.union_all(sa.select(following.c.operation_id).select_from(sa.join(named, following, sa.true())))
    return sa.select(named.c.operation_id).where(~sa.exists().where(_C.id == named.c.operation_id))


def _remove(session: Any, keys: Any) -> Done:
    gone = sa.delete(ITEM).where(by_keys([ITEM.c.operation_id], keys), ~sa.exists().where(_C.id == ITEM.c.operation_id))
    found: set[Key] = {(row.operation_id,) for row in session.execute(gone.returning(ITEM.c.operation_id))}
    return Done(dict.fromkeys(found, "removed"))


def _recounting(wrong: Any, values: Any, action: str) -> Repair:
    def repair(session: Any, keys: Any) -> Done:
        found = changed(session, OPERATION, keys, wrong, values | {"total": _items()} | _counted)
        return Done(dict.fromkeys(found, action))

    return repair


_few = sa.func.concat("it was started over ", _C.total, " items, and has ", _items())
_id = sa.select(_C.id)

OF_OPERATIONS: tuple[Invariant, ...] = (
    Invariant(
        "an operation does what is known",
        DOMAIN,
        Verdict.BROKEN,
        "operation_unknown",
        selecting(_id.where(_unknown)),
        "cancelled",
        setting(OPERATION, _unknown, {"state": OperationState.CANCELLED, "ended_at": _NOW}, "cancelled"),
    ),
    Invariant(
        "an operation has a rate at which it comes to an end",
        DOMAIN,
        Verdict.REPAIRABLE,
        "operation_rate",
        selecting(_id.where(_aimless)),
        f"set to {RATE}",
        setting(OPERATION, _aimless, {"rate": Rate.parse(RATE).per_second}, f"set to {RATE}"),
    ),
    Invariant(
        "the next items of an operation come",
        DOMAIN,
        Verdict.REPAIRABLE,
        "operation_endless",
        selecting(_id.where(_far)),
        "due now",
        setting(OPERATION, _far, {"next_at": _NOW}, "made due"),
    ),
    Invariant(
        "an operation has the items that it was started over",
        DOMAIN,
        Verdict.BROKEN,
        "operation_items_lost",
        selecting(_id.where(_lost)),
        "counted, and paused with the reason",
        _recounting(_lost, _paused | {"why": _few}, "paused"),
    ),
    Invariant(
        "an operation counts what became of its items",
        DOMAIN,
        Verdict.REPAIRABLE,
        "operation_miscounted",
        selecting(_id.where(_miscounted)),
        "counted",
        _recounting(_miscounted, {}, "counted"),
    ),
    Invariant(
        "an operation that is done has no item left",
        DOMAIN,
        Verdict.REPAIRABLE,
        "operation_ended_too_early",
        selecting(_id.where(_left)),
        "paused with the reason: what is left can be resumed",
        _recounting(_left, _paused | {"why": "it had ended while items were left"}, "paused"),
    ),
    Invariant(
        "an operation goes on while an item is left",
        DOMAIN,
        Verdict.REPAIRABLE,
        "operation_all_done",
        selecting(_id.where(_over)),
        "ended",
        setting(OPERATION, _over, {"state": OperationState.DONE, "ended_at": _NOW, "why": None}, "ended"),
    ),
    Invariant(
        "an item is that of an operation",
        DOMAIN,
        Verdict.BROKEN,
        "operation_lost",
        selecting(_orphans),
        "removed: nobody knows what was to be done",
        _remove,
    ),
    Invariant(
        "an operation that is due is worked on",
        DOMAIN,
        Verdict.DIAGNOSIS,
        "operation_idle",
        selecting(_id.where(_late)),
        "a scheduler, or beat with a worker for the queue 'control', works on it; one of higher priority comes first",
    ),
    Invariant(
        "no operation has paused itself",
        DOMAIN,
        Verdict.DIAGNOSIS,
        "operation_paused_itself",
        selecting(_id.where(_stopped)),
        "an operator: tidemill recover operation show, then resume or cancel",
    ),
)
