"""Something of everything that pages show: for tests of pages, in a browser and without one.

`fill()` returns names of what there is, for paths such as `/processes/{broken}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa

from app import audit, workers
from app.db import transaction
from processes import operate, preferences, start, templates
from processes.filters import Filters
from recovery import operations
from recovery.operations import Kind, Order, running
from recovery.operations.model import ITEM, OPERATION
from tests.kit import pages_jobs, pages_reactive, pages_stages
from tests.kit import process_rows as r

#: What somebody who is not to be trusted may write wherever he may write.
EVIL = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>{{7*7}}"


def reserve(item: str) -> str:
    return f"{item} of shelf 7"


def charge(order: str, amount: int) -> str:
    if amount > 100:
        raise RuntimeError(f"the bank says 503 to {order}")
    return f"paid {amount}"


def ship(order: str, parcel: str) -> str:
    return f"{order}: {parcel} is on its way"


def tell(order: str, text: str) -> None:
    """Of whom nobody works off the queue, where it says so."""


def fulfil(flow: Any, order: str, amount: int) -> Any:
    reserved = flow.call(reserve, order)
    paid = flow.call(charge, order, amount)
    parcels = [flow.call(ship, order, f"parcel {number}", after=[reserved, paid]) for number in (1, 2)]
    return flow.call(tell, order, "shipped", after=parcels)


FUNCTIONS = (reserve, charge, ship, tell, fulfil)
FAST = ("fulfil", "reserve", "charge", "ship")
Names = dict[str, Any]


def processes() -> Names:
    """One in each state; of some, what a producer may write is hostile."""
    with r.nothing_declared(), r.actors(*FUNCTIONS):
        ids = {"finished": _started("o-1", 20)}
        _work_off()
        preferences.configure("tell", {"blocked": True}, reason=EVIL)
        ids |= {"active": _started("o-2", 20), "broken": _started("o-3", 500), "hostile": _started(EVIL, 500)}
        _work_off()
        ids["aborted"] = _started("o-4", 20)
        operate.abort(ids["aborted"], reason=EVIL)
        ids["registered"] = _started("o-5", 20)
    return ids


def _started(order: str, amount: int) -> int:
    return start("fulfil", order, amount, custom_id=order, attributes={"shop": "7", "note": order})


def _work_off() -> None:
    """Also what waits after a failure."""
    r.begin(0)
    while r.serve(*FAST):
        r.due_again()


def over_processes() -> Names:
    """One operation that has ended, two that are paused, and one that has failed."""
    with transaction() as session:
        templates.save(session, "broken-of-shop", {"states": ["BROKEN"], "attributes": {"shop": "{shop}"}})
    ended = operations.start(Order(Kind.CHECK, Filters()), rate=None, reason="to see")
    _end_operations()
    order = Order(Kind.RESTART_TASK, Filters(name="fulfil"))
    paused, spare = (operations.start(order, rate="1/s", reason=EVIL.replace("\\", "")) for _ in range(2))
    operations.pause(paused)
    operations.pause(spare)
    failed = operations.start(Order(Kind.CHECK, Filters()), rate=None)
    _end_operations()
    _fail(failed)
    return {"operation": ended, "paused_operation": paused, "spare_operation": spare, "failed_operation": failed}


def _end_operations() -> None:
    while running.run_once(100).more:
        pass


def _fail(operation_id: int) -> None:
    """As if each of its items had failed."""
    with transaction() as session:
        of = (OPERATION.c.id == operation_id, ITEM.c.operation_id == operation_id)
        session.execute(sa.update(OPERATION).where(of[0]).values(done=0, failed=OPERATION.c.total))
        session.execute(sa.update(ITEM).where(of[1]).values(state="FAILED", outcome=EVIL))


def changes() -> Names:
    with transaction() as session:
        audit.record(session, "queue.pause", "mail", reason="too many", rate=7)
        audit.record(session, EVIL, EVIL, reason=EVIL, **{EVIL: EVIL})
        workers.beat(session, "worker-1@host", ["jobs", *(f"actor.{each}" for each in FAST)], 4, 1)
    return {}


def stages() -> Names:
    return pages_stages.fill(EVIL)


def jobs() -> Names:
    return pages_jobs.fill(EVIL)


def reactive() -> Names:
    return pages_reactive.fill(EVIL)


#: In this order. Whoever adds pages adds what they show.
PARTS: tuple[Callable[[], Mapping[str, Any]], ...] = (processes, over_processes, stages, jobs, reactive, changes)


def fill() -> Names:
    found: Names = {}
    for part in PARTS:
        found |= part()
    return found
