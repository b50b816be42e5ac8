"""The reactive scheduler service: what it follows, how far it has come, what it holds, windows that were missed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import UserDefinedType

from app.migrations import run_sql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


class _Type(UserDefinedType[str]):
    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: object) -> str:
        return self.name


def upgrade() -> None:
    op.create_table(
        "missed_window",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("opened_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("closed_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("missed_window_pkey")),
        schema="tidemill",
    )
    op.create_index("missed_window_closed_at", "missed_window", ["closed_at"], unique=False, schema="tidemill")
    op.create_index("missed_window_task", "missed_window", ["task", "id"], unique=False, schema="tidemill")
    op.create_table(
        "reactive_cursor",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("snapshot", _Type("pg_snapshot"), nullable=False),
        sa.Column("cluster", sa.BigInteger(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column(
            "moved_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("compared_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("differences", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("reactive_cursor_only_one")),
        sa.PrimaryKeyConstraint("id", name=op.f("reactive_cursor_pkey")),
        schema="tidemill",
    )
    op.create_table(
        "reactive_event",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column(
            "at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("xid", _Type("xid8"), server_default=sa.text("pg_current_xact_id()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("reactive_event_pkey")),
        schema="tidemill",
    )
    op.create_index(
        "ctl_change_changed_at", "ctl_change", ["changed_at"], unique=False, schema="tidemill", postgresql_using="brin"
    )
    op.create_index(
        "reactive_event_at", "reactive_event", ["at"], unique=False, schema="tidemill", postgresql_using="brin"
    )
    op.create_index("reactive_event_xid", "reactive_event", ["xid"], unique=False, schema="tidemill")
    op.create_table(
        "reactive_hold",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("producer", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("since", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("until", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("task", "run_id", name=op.f("reactive_hold_pkey")),
        schema="tidemill",
    )
    op.add_column(
        "queue",
        sa.Column("kept_ranks", postgresql.ARRAY(sa.SmallInteger()), server_default=sa.text("'{}'"), nullable=False),
        schema="tidemill",
    )
    op.add_column(
        "queue",
        sa.Column(
            "kept_until",
            postgresql.ARRAY(postgresql.TIMESTAMP(timezone=True)),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        schema="tidemill",
    )
    run_sql("0003_streams.sql")
