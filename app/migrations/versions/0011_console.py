"""Sessions of the console, and the audit by who did it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

MOMENT = postgresql.TIMESTAMP(timezone=True)


def upgrade() -> None:
    op.create_table(
        "console_session",
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("created_at", MOMENT, server_default=sa.text("now()"), nullable=False),
        sa.Column("seen_at", MOMENT, server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.Column("told", postgresql.JSONB(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("hash", name=op.f("console_session_pkey")),
        sa.ForeignKeyConstraint(
            ["token"], ["tidemill.token.name"], name=op.f("console_session_token_fkey"), ondelete="CASCADE"
        ),
        schema="tidemill",
    )
    op.create_index("console_session_token", "console_session", ["token"], schema="tidemill")
    op.create_index("console_session_expires_at", "console_session", ["expires_at"], schema="tidemill")
    op.create_index("audit_actor", "audit", ["actor", "id"], schema="tidemill")
