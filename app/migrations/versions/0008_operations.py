"""Operations over many processes."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_OPERATION_STATES = ("RUNNING", "PAUSED", "CANCELLED", "DONE")
_ITEM_STATES = ("WAITING", "DONE", "FAILED", "SKIPPED")


def upgrade() -> None:
    op.create_table(
        "operation",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column(
            "state",
            postgresql.ENUM(*_OPERATION_STATES, name="operation_state", schema="tidemill"),
            server_default=sa.text("'RUNNING'"),
            nullable=False,
        ),
        sa.Column("selection", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("parameters", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=True),
        _moment("created_at", now=True),
        _moment("started_at"),
        _moment("ended_at"),
        sa.Column("priority", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("rate", sa.Double(), nullable=True),
        _moment("next_at", now=True),
        *(
            sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False)
            for name in ("total", "done", "failed", "skipped")
        ),
        _moment("measured_from", now=True),
        sa.Column("ended_before", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("retry_of", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("done + failed + skipped <= total", name=op.f("operation_counts_its_items")),
        sa.CheckConstraint(
            "(ended_at IS NOT NULL) = (state IN ('CANCELLED', 'DONE'))", name=op.f("operation_ended_as_its_state_says")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("operation_pkey")),
        schema="tidemill",
    )
    _index("operation_running", "operation", [sa.text("priority DESC"), "next_at"], "state = 'RUNNING'")
    _index("operation_ended", "operation", ["ended_at"], "ended_at IS NOT NULL")
    _items()


def _items() -> None:
    op.create_table(
        "operation_item",
        sa.Column("operation_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("process_id", sa.BigInteger(), nullable=True),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.Column("subject", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column(
            "state",
            postgresql.ENUM(*_ITEM_STATES, name="operation_item_state", schema="tidemill"),
            server_default=sa.text("'WAITING'"),
            nullable=False,
        ),
        sa.Column("outcome", sa.Text(), nullable=True),
        _moment("at"),
        sa.CheckConstraint(
            "process_id IS NOT NULL OR subject IS NOT NULL", name=op.f("operation_item_is_about_something")
        ),
        sa.PrimaryKeyConstraint("operation_id", "position", name=op.f("operation_item_pkey")),
        schema="tidemill",
    )
    _index("operation_item_waiting", "operation_item", ["operation_id", "position"], "state = 'WAITING'")
    _index("operation_item_process", "operation_item", ["process_id"], "state = 'WAITING' AND process_id IS NOT NULL")


def _moment(name: str, *, now: bool = False) -> sa.Column[object]:
    default = sa.text("clock_timestamp()") if now else None
    return sa.Column(name, postgresql.TIMESTAMP(timezone=True), server_default=default, nullable=not now)


def _index(name: str, table: str, columns: Sequence[str | sa.TextClause], where: str) -> None:
    op.create_index(name, table, columns, unique=False, schema="tidemill", postgresql_where=sa.text(where))
