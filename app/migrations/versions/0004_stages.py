"""Stages: watched tables, the queue of visits, guards, states, walks over all entities; the shares of schedulers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from app.migrations import run_sql
from app.settings import settings

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "entity_guard",
        sa.Column("kind", sa.Text(collation="C"), nullable=False),
        sa.Column("entity_id", sa.Text(collation="C"), nullable=False),
        sa.Column("stage", sa.Text(collation="C"), nullable=False),
        sa.Column("pass_key", sa.Uuid(), nullable=False),
        sa.Column("until", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("kind", "entity_id", name=op.f("entity_guard_pkey")),
        schema="tidemill",
        postgresql_with={
            "fillfactor": 50,
            "autovacuum_vacuum_scale_factor": 0.0,
            "autovacuum_vacuum_threshold": 5000,
            "autovacuum_vacuum_cost_delay": 0,
        },
    )
    op.create_table(
        "entity_kind",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("relation", sa.Text(), nullable=True),
        sa.Column("mode", sa.Text(), server_default=sa.text("'exclusive'"), nullable=False),
        sa.CheckConstraint("mode in ('exclusive', 'optimistic')", name=op.f("entity_kind_mode_known")),
        sa.PrimaryKeyConstraint("kind", name=op.f("entity_kind_pkey")),
        schema="tidemill",
    )
    op.create_table(
        "resweep",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'running'"), nullable=False),
        sa.Column("rate", sa.Double(), nullable=True),
        sa.Column("paced_to", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column(
            "measured_from", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("asked_before", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=True),
        sa.Column("started_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.CheckConstraint("rate > 0", name=op.f("resweep_rate_positive")),
        sa.CheckConstraint(
            "state in ('running', 'paused') and ended_at is null "
            "or state in ('done', 'cancelled') and ended_at is not null",
            name=op.f("resweep_ended_as_its_state_says"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("resweep_pkey")),
        schema="tidemill",
    )
    op.create_index(
        "resweep_one_of_a_stage",
        "resweep",
        ["kind", "stage"],
        unique=True,
        schema="tidemill",
        postgresql_where=sa.text("ended_at is null"),
    )
    op.create_table(
        "sharding",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("shards", sa.SmallInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("sharding_only_one")),
        sa.CheckConstraint("shards between 1 and 4096", name=op.f("sharding_shards_within")),
        sa.PrimaryKeyConstraint("id", name=op.f("sharding_pkey")),
        schema="tidemill",
    )
    op.create_table(
        "stage",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("module", sa.Text(), nullable=False),
        sa.Column("watches", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("max_attempts", sa.SmallInteger(), nullable=False),
        sa.Column("declared", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True),
        sa.Column("ask_failures", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("ask_failure", sa.Text(), nullable=True),
        sa.Column(
            "registered_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("removed_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("kind", "name", name=op.f("stage_pkey")),
        schema="tidemill",
    )
    op.create_table(
        "stage_state",
        sa.Column("kind", sa.Text(collation="C"), nullable=False),
        sa.Column("entity_id", sa.Text(collation="C"), nullable=False),
        sa.Column("stage", sa.Text(collation="C"), nullable=False),
        sa.Column("type_url", sa.Text(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column(
            "changed_at",
            postgresql.TIMESTAMP(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("kind", "entity_id", "stage", name=op.f("stage_state_pkey")),
        schema="tidemill",
        postgresql_with={"fillfactor": 85},
    )
    op.create_table(
        "stage_visit",
        sa.Column("kind", sa.Text(collation="C"), nullable=False),
        sa.Column("entity_id", sa.Text(collation="C"), nullable=False),
        sa.Column("stage", sa.Text(collation="C"), nullable=False),
        sa.Column("shard", sa.SmallInteger(), nullable=False),
        sa.Column(
            "state",
            postgresql.ENUM("waiting", "running", "parked", name="visit_state", schema="tidemill"),
            server_default=sa.text("'waiting'"),
            nullable=False,
        ),
        sa.Column("due_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("low_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("again_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("again_low_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("fields", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("again_fields", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("hops", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("again_hops", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("chain", sa.Text(), nullable=True),
        sa.Column("again_chain", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("traceback", sa.Text(), nullable=True),
        sa.Column("seen_version", sa.BigInteger(), nullable=True),
        sa.Column("seen_state_version", sa.BigInteger(), nullable=True),
        sa.Column("failed_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("queue", sa.Text(), nullable=False),
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
            name=op.f("stage_visit_claimed_exactly_while_running"),
        ),
        sa.CheckConstraint(
            "state <> 'waiting' or (again_at is null and again_low_at is null)",
            name=op.f("stage_visit_asked_again_while_not_waiting"),
        ),
        sa.CheckConstraint(
            "state <> 'waiting' or due_at is not null or low_at is not null", name=op.f("stage_visit_waits_for_a_time")
        ),
        sa.PrimaryKeyConstraint("kind", "entity_id", "stage", name=op.f("stage_visit_pkey")),
        schema="tidemill",
        postgresql_with={
            "fillfactor": 70,
            "autovacuum_vacuum_scale_factor": 0.0,
            "autovacuum_vacuum_threshold": 20000,
            "autovacuum_vacuum_cost_delay": 0,
        },
    )
    op.create_index(
        "stage_visit_parked",
        "stage_visit",
        ["queue", "failed_at"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("state = 'parked'"),
    )
    op.create_index(
        "stage_visit_running",
        "stage_visit",
        ["queue", "recovery_time"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_index(
        "stage_visit_waiting_low",
        "stage_visit",
        [
            "queue",
            sa.literal_column("(CASE WHEN (low_at IS NOT NULL) THEN greatest(low_at, not_before) END)"),
            "entity_id",
        ],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("state = 'waiting' AND low_at IS NOT NULL"),
        postgresql_include=("shard",),
    )
    op.create_index(
        "stage_visit_waiting_main",
        "stage_visit",
        [
            "queue",
            sa.literal_column("(CASE WHEN (due_at IS NOT NULL) THEN greatest(due_at, not_before) END)"),
            "entity_id",
        ],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("state = 'waiting' AND due_at IS NOT NULL"),
        postgresql_include=("shard",),
    )
    op.create_table(
        "resweep_part",
        sa.Column("resweep_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("part", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "state",
            postgresql.ENUM("waiting", "running", "parked", "done", name="part_state", schema="tidemill"),
            server_default=sa.text("'waiting'"),
            nullable=False,
        ),
        sa.Column("after", sa.Text(), nullable=True),
        sa.Column("until", sa.Text(), nullable=True),
        sa.Column("asked", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("wanted", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("singly", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
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
            name=op.f("resweep_part_claimed_exactly_while_running"),
        ),
        sa.ForeignKeyConstraint(
            ["resweep_id"], ["tidemill.resweep.id"], name=op.f("resweep_part_resweep_id_fkey"), ondelete="cascade"
        ),
        sa.PrimaryKeyConstraint("resweep_id", "part", name=op.f("resweep_part_pkey")),
        schema="tidemill",
        postgresql_with={"fillfactor": 50},
    )
    op.create_index(
        "resweep_part_running",
        "resweep_part",
        ["queue", "recovery_time"],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_index(
        "resweep_part_waiting_main",
        "resweep_part",
        [
            "queue",
            sa.literal_column("(CASE WHEN (due_at IS NOT NULL) THEN greatest(due_at, not_before) END)"),
            "resweep_id",
            "part",
        ],
        unique=False,
        schema="tidemill",
        postgresql_where=sa.text("state = 'waiting'"),
    )
    op.create_table(
        "scheduler",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("started_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("beat_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("scheduler_pkey")),
        schema="tidemill",
        postgresql_with={"fillfactor": 50},
    )
    sharding = sa.table("sharding", sa.column("id"), sa.column("shards"), schema="tidemill")
    op.execute(sharding.insert().values(id=1, shards=settings().shards))
    run_sql("0004_stages.sql")
