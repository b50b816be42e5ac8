"""Searching processes and their errors."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

SPACES = " " * 13
PROCESS_WORDS = f"to_tsvector('simple'::regconfig, translate(left(error, 4000), '-_./:@+~=<>&#', '{SPACES}'))"
BROKEN_WORDS = (
    f"to_tsvector('simple'::regconfig, translate(left((type || ': ') || message, 4000), '-_./:@+~=<>&#', '{SPACES}'))"
)
QUOTED = """(?<![A-Za-z0-9_])(?:''[^'']*(?:''|\\Z)|"[^"]*(?:"|\\Z))"""
NUMBERED = "(?<![A-Za-z0-9_-])[A-Za-z0-9_-]*[0-9][A-Za-z0-9_-]*(?:[.:,+][0-9][A-Za-z0-9_-]*)*"
HEX = "(?<![A-Za-z0-9_-])[a-fA-F-]{8,}(?![A-Za-z0-9_-])"
FINGERPRINT = (
    "left(md5(actor || chr(10) || type || chr(10) || "
    f"regexp_replace(left(message, 300), '{QUOTED}|{NUMBERED}|{HEX}', '#', 'g')), 16)"
)


def upgrade() -> None:
    _processes()
    _broken_tasks()
    op.create_table(
        "search_template",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("filters", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("search_template_pkey")),
        schema="tidemill",
    )
    op.create_table(
        "known_error",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.Column("type", sa.Text(), nullable=True),
        sa.Column("fingerprint", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("says", sa.Text(), nullable=False),
        sa.Column("proposes", sa.Text(), nullable=False),
        sa.Column(
            "parameters",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "proposes in ('restart-task', 'restart', 'abort', 'none')", name=op.f("known_error_proposes_known")
        ),
        sa.CheckConstraint("num_nonnulls(actor, type, fingerprint, text) > 0", name=op.f("known_error_narrow")),
        sa.PrimaryKeyConstraint("id", name=op.f("known_error_pkey")),
        sa.UniqueConstraint("name", name=op.f("known_error_name_key")),
        schema="tidemill",
    )


def _index(name: str, table: str, *columns: object, **words: object) -> None:
    op.create_index(name, table, list(columns), schema="tidemill", **words)  # type: ignore[arg-type]


def _processes() -> None:
    for name in ("process_idempotency", "process_custom_id"):
        op.drop_index(name, table_name="process", schema="tidemill")
    keyed, named = sa.text("idempotency_key IS NOT NULL"), sa.text("custom_id IS NOT NULL")
    _index("process_idempotency", "process", "idempotency_key", "name", unique=True, postgresql_where=keyed)
    by_bytes = {"custom_id": "text_pattern_ops"}
    _index("process_custom_id", "process", "custom_id", postgresql_ops=by_bytes, postgresql_where=named)
    _index("process_registered_at", "process", "registered_at", "id")
    _index("process_begun", "process", "begun_at", postgresql_where=sa.text("begun_at IS NOT NULL"))
    _index(
        "process_attributes",
        "process",
        "attributes",
        postgresql_using="gin",
        postgresql_ops={"attributes": "jsonb_path_ops"},
        postgresql_where=sa.text("attributes <> '{}'"),
    )
    failed = sa.text("error IS NOT NULL")
    _index("process_words", "process", sa.text(PROCESS_WORDS), postgresql_using="gin", postgresql_where=failed)


def _broken_tasks() -> None:
    op.add_column(
        "broken_task",
        sa.Column("fingerprint", sa.Text(), sa.Computed(FINGERPRINT, persisted=True), nullable=False),
        schema="tidemill",
    )
    _index("broken_task_type", "broken_task", "type", "at")
    _index("broken_task_fingerprint", "broken_task", "fingerprint", "at")
    _index("broken_task_words", "broken_task", sa.text(BROKEN_WORDS), postgresql_using="gin")
