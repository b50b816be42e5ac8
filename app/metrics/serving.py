"""Workers, and which duties of the scheduler somebody leads."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import workers
from app.duties import number_of
from app.locks import DUTIES
from app.metrics import catalogue
from app.metrics.sample import Sample, named, seconds
from app.registry import registry
from app.workers import GONE, Worker

_LOCKS = sa.table(
    "pg_locks",
    *(sa.column(name) for name in ("pid", "locktype", "classid", "objid", "objsubid", "granted", "database")),
    schema="pg_catalog",
)
ACTIVITY = sa.table(
    "pg_stat_activity",
    *(sa.column(name) for name in ("pid", "datname", "backend_type", "backend_start", "xact_start")),
    schema="pg_catalog",
)
#: Of an advisory lock that has two numbers.
_TWO_NUMBERS = 2


def read(session: Session) -> Iterator[Sample]:
    live = Worker.beat_at > sa.func.now() - GONE
    count, slots = session.execute(sa.select(sa.func.count(), sa.func.sum(Worker.slots)).where(live)).one()
    yield Sample(catalogue.WORKERS, count)
    yield Sample(catalogue.WORKER_SLOTS, slots or 0)
    for queue, free in named(sorted(workers.slots(session).items())):
        yield Sample(catalogue.SLOTS, free, (queue,))
    yield from _duties(session)


def _duties(session: Session) -> Iterator[Sample]:
    """Those that are led by a loop; what beat asks for is led for a moment only."""
    lock = _LOCKS.c
    age = seconds(sa.func.clock_timestamp() - ACTIVITY.c.backend_start)
    held = (
        sa.select(lock.objid, age)
        .select_from(_LOCKS.outerjoin(ACTIVITY, ACTIVITY.c.pid == lock.pid))
        .where(lock.locktype == "advisory", lock.classid == DUTIES, lock.objsubid == _TWO_NUMBERS, lock.granted)
        .where(lock.database == sa.select(_DATABASES.c.oid).where(_HERE).scalar_subquery())
    )
    ages = {int(objid): age for objid, age in session.execute(held)}
    for each in registry.passes.values():
        if not each.scheduler or each.shared:
            continue
        # An oid has no sign.
        found = ages.get(number_of(each.name) % 2**32)
        yield Sample(catalogue.LEADERS, float(number_of(each.name) % 2**32 in ages), (each.name,))
        if found is not None:
            yield Sample(catalogue.LEADER_AGE, found, (each.name,))


_DATABASES = sa.table("pg_database", sa.column("oid"), sa.column("datname"), schema="pg_catalog")
_HERE = _DATABASES.c.datname == sa.func.current_database()
