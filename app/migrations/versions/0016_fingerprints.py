"""Errors of the database that differ in the row or in parameters have one fingerprint. What is known of an error, and
saved searches, go on with that of the tasks that are broken so."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

QUOTED = """(?<![A-Za-z0-9_])(?:''[^'']*(?:''|\\Z)|"[^"]*(?:"|\\Z))"""
NUMBERED = "(?<![A-Za-z0-9_-])[A-Za-z0-9_-]*[0-9][A-Za-z0-9_-]*(?:[.:,+][0-9][A-Za-z0-9_-]*)*"
HEX = "(?<![A-Za-z0-9_-])[a-fA-F-]{8,}(?![A-Za-z0-9_-])"
ROW = r"(?:[Ff]ailing row contains |Key \([^\n]*\)=)\((?:[^\n]|\n(?!\[SQL: |CONTEXT: ))*"
PARAMETERS = r"(?:\u0025\([A-Za-z0-9_]+\)s|\n\[parameters: )(?:.|\n)*"
VARIES = f"regexp_replace(left(message, 2000), '{QUOTED}|{NUMBERED}|{HEX}|{ROW}|{PARAMETERS}', '#', 'g')"
KIND = f"left(regexp_replace({VARIES}, '#(?:, ?#)+', '#', 'g'), 300)"
FINGERPRINT = f"left(md5(actor || chr(10) || type || chr(10) || {KIND}), 16)"


def upgrade() -> None:
    op.add_column(
        "broken_task",
        sa.Column("made", sa.Text(), sa.Computed(FINGERPRINT, persisted=True), nullable=False),
        schema="tidemill",
    )
    op.execute(
        "UPDATE tidemill.known_error SET fingerprint = made "
        "FROM tidemill.broken_task AS broken WHERE broken.fingerprint = known_error.fingerprint"
    )
    op.execute(
        "UPDATE tidemill.search_template SET filters = jsonb_set(filters, '{fingerprint}', to_jsonb(made)) "
        "FROM tidemill.broken_task AS broken WHERE broken.fingerprint = filters ->> 'fingerprint'"
    )
    op.drop_column("broken_task", "fingerprint", schema="tidemill")
    op.alter_column("broken_task", "made", new_column_name="fingerprint", schema="tidemill")
    op.create_index("broken_task_fingerprint", "broken_task", ["fingerprint", "at"], schema="tidemill")
