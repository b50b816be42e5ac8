"""What recovery found and put right."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_MOMENT = postgresql.TIMESTAMP(timezone=True)


def upgrade() -> None:
    op.create_table(
        "repair",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("at", _MOMENT, server_default=sa.text("clock_timestamp()"), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("domain", "subject", "finding", "action")),
        sa.Column("operation_id", sa.BigInteger(), nullable=True),
        sa.Column("detail", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("repair_pkey")),
        schema="tidemill",
    )
    op.create_index("repair_at", "repair", ["at"], unique=False, schema="tidemill")
    op.create_index(
        "repair_subject",
        "repair",
        ["subject", "id"],
        unique=False,
        schema="tidemill",
        postgresql_ops={"subject": "text_pattern_ops"},
    )
    op.create_index(
        "repair_operation",
        "repair",
        ["operation_id", "id"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("operation_id IS NOT NULL"),
    )
    op.create_table(
        "counter",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("at", _MOMENT, server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("counter_pkey")),
        schema="tidemill",
        postgresql_with={"fillfactor": 20},
    )
    op.create_table(
        "queue_poll",
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("polled_at", _MOMENT, nullable=False),
        sa.Column("reached", _MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("queue", name=op.f("queue_poll_pkey")),
        schema="tidemill",
        postgresql_with={"fillfactor": 20},
    )
    _paces()


def _paces() -> None:
    op.create_table(
        "repair_pace",
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("until", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("queue", name=op.f("repair_pace_pkey")),
        schema="tidemill",
        postgresql_with={"fillfactor": 20},
    )
