"""Workers that report, as far as the database knows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app import workers
from app.workers import Worker


def alive(connection: Connection, name: str, queues: Sequence[str], slots: int, pid: int) -> None:
    """And nobody takes it for gone, however long a loaded machine takes for the test."""
    workers.beat(connection, name, list(queues), slots, pid)
    later = sa.func.now() + timedelta(minutes=10)
    connection.execute(sa.update(Worker).where(Worker.name == name).values(beat_at=later))
