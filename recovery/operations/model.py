"""The tables of operations: `operation`, what is done to many things and how far it is; `operation_item`, each of them
and what became of it."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Any, NewType, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, ENUM, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.db import SCHEMA, Model

OperationId = NewType("OperationId", int)


class OperationState(enum.StrEnum):
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    CANCELLED = "CANCELLED"
    DONE = "DONE"


class ItemState(enum.StrEnum):
    WAITING = "WAITING"
    DONE = "DONE"
    FAILED = "FAILED"
    #: There was nothing to do for it, or it is not there any more.
    SKIPPED = "SKIPPED"


def _enum(kind: type[enum.StrEnum], name: str) -> ENUM:
    return ENUM(kind, name=name, schema=SCHEMA, values_callable=lambda states: [each.value for each in states])


class Operation(Model):
    """Its row is the last that a batch of items locks, and only until its commit."""

    __tablename__ = "operation"
    __table_args__ = (
        sa.Index(
            "operation_running", sa.text("priority DESC"), "next_at", postgresql_where=sa.text("state = 'RUNNING'")
        ),
        sa.Index("operation_kind", "kind", "id"),
        sa.Index("operation_ended", "ended_at", postgresql_where=sa.text("ended_at IS NOT NULL")),
        sa.CheckConstraint("done + failed + skipped <= total", name="counts_its_items"),
        sa.CheckConstraint("(ended_at IS NOT NULL) = (state IN ('CANCELLED', 'DONE'))", name="ended_as_its_state_says"),
    )

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=False), primary_key=True)
    kind: Mapped[str]
    state: Mapped[OperationState] = mapped_column(
        _enum(OperationState, "operation_state"), server_default=sa.text("'RUNNING'")
    )
    #: What was asked for, as it was written; the items are what counts.
    selection: Mapped[Any] = mapped_column(JSONB(none_as_null=True))
    #: Of the kind: from which task, whether a run is remembered.
    parameters: Mapped[Any] = mapped_column(JSONB(none_as_null=True))
    reason: Mapped[str | None]
    created_by: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())
    #: When its first item was taken.
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    priority: Mapped[int] = mapped_column(sa.SmallInteger, server_default=sa.text("0"))
    #: Items a second; null: as fast as it goes.
    rate: Mapped[float | None] = mapped_column(sa.Double)
    #: When its next batch is due by its rate; it may lag behind by `pacing.BURST`.
    next_at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())
    total: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    done: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    failed: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    skipped: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    #: Since when it runs at this rate without a pause, and how many items had ended then.
    measured_from: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())
    ended_before: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    #: Why it paused itself.
    why: Mapped[str | None]
    #: The operation whose failed items it tries again.
    retry_of: Mapped[int | None] = mapped_column(sa.BigInteger)


class OperationItem(Model):
    __tablename__ = "operation_item"
    __table_args__ = (
        sa.Index("operation_item_waiting", "operation_id", "position", postgresql_where=sa.text("state = 'WAITING'")),
        sa.Index(
            "operation_item_process",
            "process_id",
            postgresql_where=sa.text("state = 'WAITING' AND process_id IS NOT NULL"),
        ),
        sa.CheckConstraint("process_id IS NOT NULL OR subject IS NOT NULL", name="is_about_something"),
    )

    operation_id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    #: From 1, in the order in which they are taken.
    position: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    process_id: Mapped[int | None] = mapped_column(sa.BigInteger)
    #: Of a task of the process.
    number: Mapped[int | None]
    #: What is no process: kind, stage and id of an entity; a reactive task; an entry of the job log.
    subject: Mapped[list[str] | None] = mapped_column(ARRAY(sa.Text))
    state: Mapped[ItemState] = mapped_column(
        _enum(ItemState, "operation_item_state"), server_default=sa.text("'WAITING'")
    )
    outcome: Mapped[str | None]
    at: Mapped[datetime | None]


OPERATION = cast(sa.Table, Operation.__table__)
ITEM = cast(sa.Table, OperationItem.__table__)
#: Has not ended.
LIVE = OPERATION.c.ended_at.is_(None)
