"""Tasks that take for seen what is there at first are found by index; the control table cannot be truncated."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.migrations import run_sql

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "reactive_task_baseline",
        "reactive_task",
        ["id"],
        schema="tidemill",
        postgresql_where=sa.text("first_run = 'baseline' AND removed_at IS NULL"),
    )
    run_sql("0017_ctl.sql")
