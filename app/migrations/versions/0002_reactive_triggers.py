"""Reactive triggers: the control table, tasks, runs, evaluations; the audit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import UserDefinedType

from app.migrations import run_sql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


class TransactionId(UserDefinedType[str]):
    def get_col_spec(self, **_: object) -> str:
        return "xid8"


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column(
            "at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("detail", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("audit_pkey")),
        schema="tidemill",
    )
    op.create_index("audit_subject", "audit", ["subject", "id"], unique=False, schema="tidemill")
    op.create_table(
        "ctl",
        sa.Column("entity", sa.Text(), nullable=False),
        sa.Column("parameter", sa.Text(), nullable=False),
        sa.Column("value", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("epoch", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "changed_at",
            postgresql.TIMESTAMP(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint("value between '0002-01-01Z' and '9998-12-31Z'", name=op.f("ctl_value_within_years")),
        sa.PrimaryKeyConstraint("entity", "parameter", name=op.f("ctl_pkey")),
        schema="tidemill",
        postgresql_with={"fillfactor": 70},
    )
    op.create_table(
        "ctl_change",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("entity", sa.Text(), nullable=False),
        sa.Column("parameter", sa.Text(), nullable=False),
        sa.Column("value", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("previous", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("restated", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column(
            "changed_at",
            postgresql.TIMESTAMP(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("xid", TransactionId(), server_default=sa.text("pg_current_xact_id()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("ctl_change_pkey")),
        schema="tidemill",
    )
    op.create_index(
        "ctl_change_parameter", "ctl_change", ["entity", "parameter", "id"], unique=False, schema="tidemill"
    )
    op.create_index("ctl_change_xid", "ctl_change", ["xid"], unique=False, schema="tidemill")
    op.create_table(
        "ctl_seen",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("entity", sa.Text(), nullable=False),
        sa.Column("parameter", sa.Text(), nullable=False),
        sa.Column("value", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("seen_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("task", "entity", "parameter", name=op.f("ctl_seen_pkey")),
        schema="tidemill",
    )
    op.create_table(
        "evaluation",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("fired", sa.Boolean(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("trigger", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("values", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("evaluation_pkey")),
        schema="tidemill",
    )
    op.create_index("evaluation_at", "evaluation", ["at"], unique=False, schema="tidemill")
    op.create_index("evaluation_task", "evaluation", ["task", "at"], unique=False, schema="tidemill")
    op.create_table(
        "reactive_pool",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ageing", sa.Interval(), server_default=sa.text("'1 minute'"), nullable=False),
        sa.Column("max_hold", sa.Interval(), nullable=True),
        sa.Column("declared", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("reactive_pool_pkey")),
        schema="tidemill",
    )
    op.create_table(
        "reactive_task",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("module", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("trigger", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("produces", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("min_interval", sa.Interval(), nullable=True),
        sa.Column("first_run", sa.Text(), nullable=False),
        sa.Column("on_lapse", sa.Text(), nullable=False),
        sa.Column("max_failures", sa.SmallInteger(), nullable=False),
        sa.Column("backoff", sa.Interval(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("seen_epoch", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("fired", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("failures", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("start_after", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("quarantined_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("quarantine_reason", sa.Text(), nullable=True),
        sa.Column("quarantine_values", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column(
            "registered_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("changed_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("removed_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.CheckConstraint("first_run in ('fire', 'baseline')", name=op.f("reactive_task_first_run_known")),
        sa.CheckConstraint("on_lapse in ('drop', 'run')", name=op.f("reactive_task_on_lapse_known")),
        sa.PrimaryKeyConstraint("name", name=op.f("reactive_task_pkey")),
        sa.UniqueConstraint("id", name=op.f("reactive_task_id_key")),
        schema="tidemill",
        postgresql_with={"fillfactor": 70},
    )
    op.create_table(
        "run",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column(
            "state",
            postgresql.ENUM(
                "waiting", "running", "done", "failed", "cancelled", "lapsed", name="run_state", schema="tidemill"
            ),
            server_default=sa.text("'waiting'"),
            nullable=False,
        ),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column(
            "kind",
            postgresql.ENUM("regular", "manual", name="run_kind", schema="tidemill"),
            server_default=sa.text("'regular'"),
            nullable=False,
        ),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("record", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("window_from", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("window_to", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("seen_epoch", sa.BigInteger(), nullable=True),
        sa.Column("checked", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("outputs", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("requested_by", sa.Text(), nullable=True),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("ended_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("traceback", sa.Text(), nullable=True),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("due_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=True),
        sa.Column("rank", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("not_before", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("pass_key", sa.Uuid(), nullable=True),
        sa.Column("recovery_time", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("attempts", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("alone", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("claimed_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("claimed_by", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(state = 'running') = (pass_key is not null) and (state = 'running') = (recovery_time is not null)",
            name=op.f("run_claimed_exactly_while_running"),
        ),
        sa.CheckConstraint("(window_from is null) = (window_to is null)", name=op.f("run_window_has_two_ends")),
        sa.PrimaryKeyConstraint("id", name=op.f("run_pkey")),
        schema="tidemill",
        postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.0, "autovacuum_vacuum_threshold": 20000},
    )
    op.create_index(
        "run_ended_at",
        "run",
        ["ended_at"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_index(
        "run_one_live",
        "run",
        ["task"],
        unique=True,
        schema="tidemill",
        postgresql_where=sa.text("state IN ('waiting', 'running')"),
    )
    op.create_index(
        "run_running",
        "run",
        ["queue", "recovery_time"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_index("run_task", "run", ["task", "id"], unique=False, schema="tidemill")
    op.create_index(
        "run_waiting_main",
        "run",
        [
            "queue",
            "rank",
            sa.literal_column("(CASE WHEN (due_at IS NOT NULL) THEN greatest(due_at, not_before) END)"),
            "id",
        ],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("state = 'waiting'"),
    )
    op.create_table(
        "reactive_leaf",
        sa.Column("task_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.SmallInteger(), nullable=False),
        sa.Column("entity", sa.Text(), nullable=False),
        sa.Column("parameter", sa.Text(), nullable=False),
        sa.Column("ref_entity", sa.Text(), nullable=True),
        sa.Column("ref_parameter", sa.Text(), nullable=True),
        sa.Column("latched", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id"], ["tidemill.reactive_task.id"], name=op.f("reactive_leaf_task_id_fkey"), ondelete="cascade"
        ),
        sa.PrimaryKeyConstraint("task_id", "position", name=op.f("reactive_leaf_pkey")),
        schema="tidemill",
    )
    op.create_index(
        "reactive_leaf_parameter", "reactive_leaf", ["entity", "parameter"], unique=False, schema="tidemill"
    )
    op.create_index(
        "reactive_leaf_reference", "reactive_leaf", ["ref_entity", "ref_parameter"], unique=False, schema="tidemill"
    )
    op.create_check_constraint(
        op.f("job_queue_not_reserved"), "job", "queue !~ '^(reactive|stage|actor)[.]'", schema="tidemill"
    )
    run_sql("0002_ctl.sql")
    run_sql("0002_enqueue.sql")
