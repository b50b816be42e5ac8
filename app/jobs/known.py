"""The tasks that services have registered, written when each starts: what producers in SQL may name (J10)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from app.claims import Executor
from app.jobs.model import KnownTask


class Known(NamedTuple):
    name: str
    queue: str
    max_attempts: int


def register(executor: Executor, tasks: Iterable[Known]) -> int:
    """Adds or renews these; none is ever removed, since workers of two releases may live side by side."""
    # In one order, so that two services that start at once do not wait for each other in a circle.
    rows = [task._asdict() for task in sorted(tasks)]
    if not rows:
        return 0
    insert = postgresql.insert(KnownTask)
    executor.execute(
        insert.on_conflict_do_update(
            index_elements=["name"],
            set_={
                "queue": insert.excluded.queue,
                "max_attempts": insert.excluded.max_attempts,
                "seen_at": sa.func.now(),
            },
        ),
        rows,
    )
    return len(rows)
