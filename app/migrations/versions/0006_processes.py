"""Processes: deciders, actors, and the graphs that they make."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "actor_preferences",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("decider", sa.Boolean(), nullable=False),
        sa.Column("outside", sa.Boolean(), nullable=False),
        sa.Column("module", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("accept_first", sa.Boolean(), nullable=False),
        sa.Column("work_timeout", sa.Interval(), nullable=False),
        sa.Column("restart_after_work_timeout", sa.Boolean(), nullable=False),
        sa.Column("max_restarts", sa.SmallInteger(), nullable=False),
        sa.Column("task_timeout", sa.Interval(), nullable=True),
        sa.Column("force_finish_after_task_timeout", sa.Boolean(), nullable=False),
        sa.Column("retry", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("fail_types", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("process_timeout", sa.Interval(), nullable=True),
        sa.Column("idle_process_timeout", sa.Interval(), nullable=False),
        sa.Column("retention", sa.Interval(), nullable=False),
        sa.Column("when_inconsistent", sa.Text(), nullable=False),
        sa.Column("declared", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("work_timeouts", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("removed_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("actor_preferences_pkey")),
        schema="tidemill",
    )
    op.create_table(
        "answer",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("process_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column(
            "at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("refused", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("traceback", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("answer_pkey")),
        schema="tidemill",
    )
    op.create_index("answer_task", "answer", ["process_id", "number", "id"], unique=False, schema="tidemill")
    op.create_table(
        "broken_task",
        sa.Column("process_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column(
            "at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("traceback", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("process_id", "number", name=op.f("broken_task_pkey")),
        schema="tidemill",
    )
    op.create_index("broken_task_actor", "broken_task", ["actor", "at"], unique=False, schema="tidemill")
    op.create_index("broken_task_at", "broken_task", ["at"], unique=False, schema="tidemill")
    op.create_table(
        "decision",
        sa.Column("process_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "state",
            postgresql.ENUM("QUEUED", "WORK", "FINISH", name="decision_state", schema="tidemill"),
            server_default=sa.text("'QUEUED'"),
            nullable=False,
        ),
        sa.Column("epoch", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failures", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("restarts", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("deadline_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("force_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("queued_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
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
        sa.CheckConstraint("(pass_key IS NOT NULL) = (state = 'WORK')", name=op.f("decision_held_exactly_in_work")),
        sa.PrimaryKeyConstraint("process_id", "number", name=op.f("decision_pkey")),
        schema="tidemill",
        postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.0, "autovacuum_vacuum_threshold": 20000},
    )
    op.create_index(
        "decision_deadline",
        "decision",
        ["recovery_time"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("state = 'QUEUED' AND recovery_time IS NOT NULL"),
    )
    op.create_index(
        "decision_running",
        "decision",
        ["queue", "recovery_time"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("state = 'WORK'"),
    )
    op.create_index(
        "decision_waiting_main",
        "decision",
        [
            "queue",
            "rank",
            sa.literal_column("(CASE WHEN (due_at IS NOT NULL) THEN greatest(due_at, not_before) END)"),
            "process_id",
            "number",
        ],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("state = 'QUEUED'"),
        postgresql_include=(),
    )
    op.create_table(
        "edge",
        sa.Column("process_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("target", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.PrimaryKeyConstraint("process_id", "source", "target", "value", name=op.f("edge_pkey")),
        schema="tidemill",
    )
    op.create_table(
        "graph",
        sa.Column("process_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("tasks", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("unfinished", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("broken", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("changed_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("recovery_time", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.CheckConstraint(
            "0 <= broken AND broken <= unfinished AND unfinished <= tasks", name=op.f("graph_counts_its_tasks")
        ),
        sa.PrimaryKeyConstraint("process_id", name=op.f("graph_pkey")),
        schema="tidemill",
        postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.0, "autovacuum_vacuum_threshold": 20000},
    )
    op.create_index(
        "graph_recovery",
        "graph",
        ["recovery_time"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("recovery_time IS NOT NULL"),
    )
    op.create_table(
        "process",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column(
            "state",
            postgresql.ENUM(
                "REGISTERED", "ACTIVE", "FINISHED", "BROKEN", "ABORTED", name="process_state", schema="tidemill"
            ),
            server_default=sa.text("'REGISTERED'"),
            nullable=False,
        ),
        sa.Column("priority", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("custom_id", sa.Text(), nullable=True),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column(
            "attributes",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("arguments", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("value", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column(
            "registered_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("begun_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("ended_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("deadline_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("recovery_time", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(ended_at IS NOT NULL) = (state IN ('FINISHED', 'ABORTED'))", name=op.f("process_ended_as_its_state_says")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("process_pkey")),
        schema="tidemill",
        postgresql_with={"fillfactor": 85},
    )
    op.create_index(
        "process_custom_id",
        "process",
        ["custom_id"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("custom_id IS NOT NULL"),
    )
    op.create_index(
        "process_ended",
        "process",
        ["name", "ended_at"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_index(
        "process_idempotency",
        "process",
        ["name", "idempotency_key"],
        unique=True,
        schema="tidemill",
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_index(
        "process_recovery",
        "process",
        ["recovery_time"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("recovery_time IS NOT NULL"),
    )
    op.create_index(
        "process_registered",
        "process",
        ["name", sa.literal_column("priority DESC"), "id"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("state = 'REGISTERED'"),
    )
    op.create_index("process_state", "process", ["state", "name", "id"], unique=False, schema="tidemill")
    op.create_table(
        "task",
        sa.Column("process_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column(
            "state",
            postgresql.ENUM(
                "PENDING", "READY", "FOLLOWS", "FINISHED", "BROKEN", "ABORTED", name="task_state", schema="tidemill"
            ),
            nullable=False,
        ),
        sa.Column("pending", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("arguments", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("uses", postgresql.ARRAY(sa.Integer()), nullable=True),
        sa.Column("created_by", sa.Integer(), nullable=True),
        sa.Column("policy", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True),
        sa.Column("not_before", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("delay", sa.Interval(), nullable=True),
        sa.Column("value_of", sa.Integer(), nullable=True),
        sa.Column("result", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("failed", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ready_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("ended_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.CheckConstraint("pending = 0 OR state IN ('PENDING', 'ABORTED')", name=op.f("task_ready_waits_for_nothing")),
        sa.CheckConstraint("pending >= 0 AND (pending > 0 OR state <> 'PENDING')", name=op.f("task_pending_waits")),
        sa.PrimaryKeyConstraint("process_id", "number", name=op.f("task_pkey")),
        schema="tidemill",
        postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.0, "autovacuum_vacuum_threshold": 20000},
    )
