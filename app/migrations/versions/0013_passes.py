"""Running rows are found by their pass as well; the record of repairs by the pages of a time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

RUNNING = {"job": "running", "run": "running", "stage_visit": "running", "resweep_part": "running", "decision": "WORK"}


def upgrade() -> None:
    for table, state in RUNNING.items():
        op.drop_index(f"{table}_running", table, schema="tidemill")
        op.create_index(
            f"{table}_running",
            table,
            ["queue", "recovery_time", "pass_key"],
            schema="tidemill",
            postgresql_where=sa.text(f"state = '{state}'"),
        )
    op.drop_index("repair_at", "repair", schema="tidemill")
    op.create_index("repair_at", "repair", ["at"], schema="tidemill", postgresql_using="brin")
