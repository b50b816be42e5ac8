"""Durable jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from app.migrations import run_sql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column(
            "state",
            postgresql.ENUM("waiting", "running", "parked", name="job_state", schema="tidemill"),
            server_default=sa.text("'waiting'"),
            nullable=False,
        ),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("args", postgresql.JSON(astext_type=sa.Text()), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("kwargs", postgresql.JSON(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("expires_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("max_attempts", sa.SmallInteger(), server_default=sa.text("4"), nullable=False),
        sa.Column("enqueued_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
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
        sa.CheckConstraint(
            "(state = 'running') = (pass_key is not null) and (state = 'running') = (recovery_time is not null)",
            name=op.f("job_claimed_exactly_while_running"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("job_pkey")),
        schema="tidemill",
        postgresql_with={
            "fillfactor": 70,
            "autovacuum_vacuum_scale_factor": 0.0,
            "autovacuum_vacuum_threshold": 20000,
            "autovacuum_vacuum_cost_delay": 0,
        },
    )
    op.create_index(
        "job_key",
        "job",
        ["key"],
        unique=True,
        schema="tidemill",
        postgresql_where=sa.text("key IS NOT NULL AND state = 'waiting'"),
    )
    op.create_index(
        "job_parked",
        "job",
        ["queue", "id"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("state = 'parked'"),
    )
    op.create_index(
        "job_running",
        "job",
        ["queue", "recovery_time"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_index(
        "job_waiting_main",
        "job",
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
        "job_log",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.SmallInteger(), nullable=False),
        sa.Column(
            "outcome",
            postgresql.ENUM(
                "done",
                "retried",
                "failed",
                "lost",
                "interrupted",
                "cancelled",
                "expired",
                "absorbed",
                name="job_outcome",
                schema="tidemill",
            ),
            nullable=False,
        ),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("args", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("kwargs", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("rank", sa.SmallInteger(), nullable=False),
        sa.Column("max_attempts", sa.SmallInteger(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("enqueued_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("started_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column(
            "ended_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("traceback", sa.Text(), nullable=True),
        sa.Column("result", postgresql.JSON(astext_type=sa.Text()), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("job_log_pkey")),
        schema="tidemill",
        postgresql_with={"autovacuum_vacuum_insert_scale_factor": 0.05},
    )
    op.create_index("job_log_ended_at", "job_log", ["ended_at"], unique=False, schema="tidemill")
    op.create_index(op.f("job_log_job_id"), "job_log", ["job_id"], unique=False, schema="tidemill")
    op.create_index(
        "job_log_not_done",
        "job_log",
        ["outcome", "ended_at"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("outcome <> 'done'"),
    )
    op.create_index("job_log_task", "job_log", ["task", "ended_at"], unique=False, schema="tidemill")
    op.create_table(
        "known_task",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("max_attempts", sa.SmallInteger(), nullable=False),
        sa.Column("seen_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("known_task_pkey")),
        schema="tidemill",
    )
    op.create_table(
        "periodic_job",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("args", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("kwargs", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("rank", sa.SmallInteger(), nullable=False),
        sa.Column("max_attempts", sa.SmallInteger(), nullable=False),
        sa.Column("cron", sa.Text(), nullable=True),
        sa.Column("every", sa.Interval(), nullable=True),
        sa.Column("tz", sa.Text(), nullable=False),
        sa.Column("catch_up", sa.Text(), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("next_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("fired_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.CheckConstraint("(cron is null) <> (every is null)", name=op.f("periodic_job_cron_or_every")),
        sa.PrimaryKeyConstraint("name", name=op.f("periodic_job_pkey")),
        schema="tidemill",
    )
    op.create_index(op.f("periodic_job_next_at"), "periodic_job", ["next_at"], unique=False, schema="tidemill")
    op.create_table(
        "queue",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("max_parallel", sa.Integer(), nullable=True),
        sa.Column("rate", sa.Double(), nullable=True),
        sa.Column("burst", sa.Double(), server_default=sa.text("1"), nullable=False),
        sa.Column("tokens", sa.Double(), server_default=sa.text("1"), nullable=False),
        sa.Column("refilled_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("burst >= 1", name=op.f("queue_burst_at_least_one")),
        sa.CheckConstraint("max_parallel > 0", name=op.f("queue_max_parallel_positive")),
        sa.CheckConstraint("rate > 0", name=op.f("queue_rate_positive")),
        sa.PrimaryKeyConstraint("name", name=op.f("queue_pkey")),
        schema="tidemill",
        postgresql_with={"fillfactor": 10},
    )
    op.create_table(
        "worker",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("queues", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("beat_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("worker_pkey")),
        schema="tidemill",
        postgresql_with={"fillfactor": 50},
    )
    run_sql("0001_enqueue.sql")
