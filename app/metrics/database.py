"""What the server says of its sessions. Of those of other accounts it tells only members of `pg_read_all_stats`."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.metrics import catalogue
from app.metrics.sample import Sample, seconds
from app.metrics.serving import ACTIVITY


def read(session: Session) -> Iterator[Sample]:
    here = ACTIVITY.c.datname == sa.func.current_database()
    client = ACTIVITY.c.backend_type == "client backend"
    other = ACTIVITY.c.pid != sa.func.pg_backend_pid()
    oldest = sa.func.min(ACTIVITY.c.xact_start).filter(other)
    age = sa.func.coalesce(seconds(sa.func.clock_timestamp() - oldest), 0)
    count, found = session.execute(sa.select(sa.func.count(), age).where(here, client)).one()
    yield Sample(catalogue.CONNECTIONS, count)
    yield Sample(catalogue.TRANSACTION, found)
