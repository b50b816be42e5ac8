"""A call of tidemill.enqueue that takes the place of a waiting job takes that of its trace too, and no queue has a
comma; the ids of entities are text wherever a watched table is written."""

from __future__ import annotations

from app.migrations import run_sql

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql("0015_enqueue.sql")
    run_sql("0015_entity_id.sql")
