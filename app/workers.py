"""The workers that live: which queues they serve and with how many slots. Written by each worker's main process."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Mapped, mapped_column

from app.claims import Executor
from app.db import Model

BEAT_SECONDS = 3.0
#: Of this worker's start, known to its children: two containers may have the same host name and process ids.
INCARNATION = secrets.token_hex(3)
#: A worker that has not been heard of for this long is not counted on.
GONE = timedelta(seconds=15)


class Worker(Model):
    __tablename__ = "worker"
    __table_args__ = ({"postgresql_with": {"fillfactor": 50}},)

    name: Mapped[str] = mapped_column(primary_key=True)
    queues: Mapped[list[str]] = mapped_column(ARRAY(sa.Text))
    slots: Mapped[int]
    pid: Mapped[int]
    started_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    beat_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())


def beat(executor: Executor, name: str, queues: list[str], slots: int, pid: int) -> None:
    values = {"queues": queues, "slots": slots, "pid": pid, "beat_at": sa.func.now()}
    executor.execute(
        postgresql.insert(Worker)
        .values(name=name, **values)
        .on_conflict_do_update(index_elements=["name"], set_=values)
    )


def child_name(hostname: str, pid: int) -> str:
    return f"{hostname}/{pid}.{INCARNATION}"


def leave(executor: Executor, name: str, pid: int) -> None:
    executor.execute(sa.delete(Worker).where(Worker.name == name, Worker.pid == pid))


def forget_gone(connection: Connection) -> int:
    return connection.execute(sa.delete(Worker).where(Worker.beat_at < sa.func.now() - timedelta(days=1))).rowcount


def slots(executor: Executor) -> dict[str, int]:
    """How many slots live workers have for each queue."""
    queue = sa.func.unnest(Worker.queues).table_valued("queue").render_derived(name="q")
    statement = (
        sa.select(queue.c.queue, sa.func.sum(Worker.slots))
        .select_from(sa.join(Worker, queue, sa.true()))
        .where(Worker.beat_at > sa.func.now() - GONE)
        .group_by(queue.c.queue)
    )
    return {row[0]: int(row[1]) for row in executor.execute(statement)}
