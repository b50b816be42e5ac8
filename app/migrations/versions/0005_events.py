"""What is published after a commit, and how far; tokens; queues that rest; stages that others ask for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import UserDefinedType

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


class TransactionId(UserDefinedType[str]):
    def get_col_spec(self, **_: object) -> str:
        return "xid8"


class Snapshot(UserDefinedType[str]):
    def get_col_spec(self, **_: object) -> str:
        return "pg_snapshot"


def upgrade() -> None:
    op.create_table(
        "event",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("fields", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("entity", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("state_type", sa.Text(), nullable=True),
        sa.Column("state_value", sa.LargeBinary(), nullable=True),
        sa.Column("state_version", sa.BigInteger(), nullable=False),
        sa.Column(
            "saved_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("xid", TransactionId(), server_default=sa.text("pg_current_xact_id()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("event_pkey")),
        schema="tidemill",
    )
    op.create_index("event_xid", "event", ["xid"], unique=False, schema="tidemill")
    op.create_table(
        "event_relay",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("snapshot", Snapshot(), nullable=False),
        sa.Column("target", Snapshot(), nullable=True),
        sa.Column("done_id", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_id", sa.BigInteger(), nullable=True),
        sa.Column("replay_from", sa.BigInteger(), nullable=True),
        sa.Column("replay_to", sa.BigInteger(), nullable=True),
        sa.Column(
            "lately_at",
            postgresql.TIMESTAMP(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("lately_id", sa.BigInteger(), nullable=True),
        sa.Column("earlier_id", sa.BigInteger(), nullable=True),
        sa.Column("cluster", sa.BigInteger(), nullable=False),
        sa.Column("term", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("published", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "moved_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("failed_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.CheckConstraint("id = 1", name=op.f("event_relay_only_one")),
        sa.PrimaryKeyConstraint("id", name=op.f("event_relay_pkey")),
        schema="tidemill",
    )
    op.create_table(
        "event_seen",
        sa.Column("subscriber", sa.Text(collation="C"), nullable=False),
        sa.Column("kind", sa.Text(collation="C"), nullable=False),
        sa.Column("entity_id", sa.Text(collation="C"), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("subscriber", "kind", "entity_id", name=op.f("event_seen_pkey")),
        schema="tidemill",
        postgresql_with={"fillfactor": 80},
    )
    op.create_table(
        "event_subscription",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("patterns", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("former", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("event_subscription_pkey")),
        schema="tidemill",
    )
    op.create_table(
        "token",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("scope", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("revoked_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.CheckConstraint("role in ('producer', 'actor') or scope is null", name=op.f("token_scope_of_narrow_roles")),
        sa.CheckConstraint("role in ('viewer', 'operator', 'producer', 'actor')", name=op.f("token_role_known")),
        sa.PrimaryKeyConstraint("name", name=op.f("token_pkey")),
        sa.UniqueConstraint("hash", name=op.f("token_hash_key")),
        schema="tidemill",
    )
    op.add_column("queue", sa.Column("rests_why", sa.Text(), nullable=True), schema="tidemill")
    op.add_column(
        "queue", sa.Column("rests_until", postgresql.TIMESTAMP(timezone=True), nullable=True), schema="tidemill"
    )
    op.add_column(
        "queue", sa.Column("rests", sa.SmallInteger(), server_default=sa.text("0"), nullable=False), schema="tidemill"
    )
    op.add_column(
        "stage", sa.Column("asked", sa.Boolean(), server_default=sa.text("true"), nullable=False), schema="tidemill"
    )
