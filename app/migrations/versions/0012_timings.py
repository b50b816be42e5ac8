"""How long work waited and took; and by whom it was put in, for traces."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "timing",
        sa.Column("measure", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("le", sa.Double(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column(
            "at",
            postgresql.TIMESTAMP(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("measure", "kind", "name", "outcome", "le", name="timing_pkey"),
        schema="tidemill",
        postgresql_with={"fillfactor": 50},
    )
    for table in ("job", "process"):
        op.add_column(table, sa.Column("trace", sa.Text(), nullable=True), schema="tidemill")
