"""When each actor's queue was last asked for work, and how far it has come: what tells a backlog from something lost
(R4).

Sampled: each process writes a queue at most every few seconds, in a statement of its own, and never more often.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Row
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Mapped, mapped_column

from app.db import Model, autocommit
from app.errors import DatabaseError

EVERY_SECONDS = 5.0
#: Names are bounded, whoever invents them.
QUEUES_MOST = 1000


class QueuePoll(Model):
    __tablename__ = "queue_poll"
    __table_args__ = ({"postgresql_with": {"fillfactor": 20}},)

    queue: Mapped[str] = mapped_column(primary_key=True)
    #: When somebody last asked, also in vain.
    polled_at: Mapped[datetime]
    #: The latest moment from which something that was handed out had been ready.
    reached: Mapped[datetime | None]


QUEUE_POLL = cast(sa.Table, QueuePoll.__table__)


@dataclass
class Sampler:
    """Of one process; for any number of threads."""

    #: By queue: when it was written, on the monotonic clock; and what has been reached since.
    written: dict[str, float] = field(default_factory=dict)
    reached: dict[str, datetime] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, queue: str, rows: Iterable[Row[Any]]) -> None:
        """The queue was asked just now, and these rows were claimed from it."""
        now = time.monotonic()
        with self._lock:
            if (latest := max((row.ready for row in rows), default=None)) is not None:
                before = self.reached.get(queue)
                self.reached[queue] = latest if before is None else max(before, latest)
            if now - self.written.get(queue, float("-inf")) < EVERY_SECONDS:
                return
            if len(self.written) > QUEUES_MOST:
                self.written.clear()
            self.written[queue] = now
            reached = self.reached.pop(queue, None)
        try:
            with autocommit() as connection:
                connection.execute(_noting(queue, reached))
        except (SQLAlchemyError, DatabaseError):
            # It only helps to explain; what was claimed is to be worked on.
            return


def _noting(queue: str, reached: datetime | None) -> Any:
    insert = postgresql.insert(QUEUE_POLL).values(queue=queue, polled_at=sa.func.clock_timestamp(), reached=reached)
    later = {name: sa.func.greatest(QUEUE_POLL.c[name], insert.excluded[name]) for name in ("polled_at", "reached")}
    return insert.on_conflict_do_update(index_elements=["queue"], set_=later)
