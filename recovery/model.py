"""What recovery has put right: one row for each repair (R7)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.db import Model


class Repair(Model):
    __tablename__ = "repair"
    __table_args__ = (
        # They are written in the order of time, a thousand at once: it is enough to know which pages are of when.
        sa.Index("repair_at", "at", postgresql_using="brin"),
        sa.Index("repair_subject", "subject", "id", postgresql_ops={"subject": "text_pattern_ops"}),
        sa.Index("repair_operation", "operation_id", "id", postgresql_where=sa.text("operation_id IS NOT NULL")),
    )

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=False), primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())
    #: `process`, `visit`, `run`, `job`, `queue`, `event` or `operation`.
    domain: Mapped[str]
    #: `17`, or of a task, `17/3`; of a visit, `offer 12 expire`.
    subject: Mapped[str]
    #: What was wrong, and what was done about it.
    finding: Mapped[str]
    action: Mapped[str]
    #: Null: by itself.
    operation_id: Mapped[int | None] = mapped_column(sa.BigInteger)
    detail: Mapped[Any | None] = mapped_column(JSONB(none_as_null=True))


REPAIR = cast(sa.Table, Repair.__table__)
