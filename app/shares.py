"""How schedulers share work out that is cut into shards (S13).

Each reports every few seconds; those that have done so lately, in the order of their names, take equal ranges of shards
in turn. One that dies falls out of the list, and its shards fall to the others. Two that believe for a moment that a
shard is theirs both look after it, which is harmless: what is claimed is claimed once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Mapped, mapped_column

from app.claims import Executor
from app.db import Model
from app.workers import INCARNATION

Shards = tuple[int, int]
#: A scheduler that has not been heard of for this long has left its shards to the others.
GONE = timedelta(seconds=5)
FORGOTTEN = timedelta(hours=1)


class Scheduler(Model):
    __tablename__ = "scheduler"
    __table_args__ = ({"postgresql_with": {"fillfactor": 50}},)

    name: Mapped[str] = mapped_column(primary_key=True)
    started_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    beat_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())


def own_name() -> str:
    return f"{socket.gethostname()}/{os.getpid()}.{INCARNATION}"


def report(executor: Executor, name: str) -> list[str]:
    """Says that this scheduler lives; returns the names of all that do, in order."""
    insert = postgresql.insert(Scheduler).values(name=name)
    executor.execute(insert.on_conflict_do_update(index_elements=["name"], set_={"beat_at": sa.func.now()}))
    executor.execute(sa.delete(Scheduler).where(Scheduler.beat_at < sa.func.now() - FORGOTTEN))
    live = sa.select(Scheduler.name).where(Scheduler.beat_at > sa.func.now() - GONE)
    return sorted(executor.execute(live).scalars())


def leave(executor: Executor, name: str) -> None:
    executor.execute(sa.delete(Scheduler).where(Scheduler.name == name))


def share(name: str, live: Sequence[str], shards: int) -> Shards | None:
    """The first and the last shard that are this one's. None: there are more schedulers than shards.

    >>> [share(name, ["a", "b", "c"], 16) for name in "abc"]
    [(0, 4), (5, 9), (10, 15)]
    """
    place = live.index(name)
    first, after = place * shards // len(live), (place + 1) * shards // len(live)
    return (first, after - 1) if after > first else None
