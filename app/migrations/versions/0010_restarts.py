"""Restarts with other values, and as copies; what must not be called twice."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "actor_preferences",
        sa.Column("repeatable", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        schema="tidemill",
    )
    op.add_column("process", sa.Column("copied_from", sa.BigInteger(), nullable=True), schema="tidemill")
    op.create_index(
        "process_copied_from",
        "process",
        ["copied_from"],
        schema="tidemill",
        postgresql_where=sa.text("copied_from IS NOT NULL"),
    )
