"""The board of reactive tasks is read by index, also by the states of tasks and by their pools; operations by kind."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

#: What changes seldom, so that the ends of runs stay updates of no index.
STATES = {
    "paused": "paused",
    "quarantined": "quarantined_at IS NOT NULL",
    "removed": "removed_at IS NOT NULL",
    "spaced": "min_interval IS NOT NULL",
}


def upgrade() -> None:
    op.create_index(
        "reactive_task_pool",
        "reactive_task",
        ["pool", "name"],
        schema="tidemill",
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    for word, condition in STATES.items():
        op.create_index(
            f"reactive_task_{word}", "reactive_task", ["name"], schema="tidemill", postgresql_where=sa.text(condition)
        )
    op.create_index("operation_kind", "operation", ["kind", "id"], schema="tidemill")
