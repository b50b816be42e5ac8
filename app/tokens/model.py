"""Tokens: who may do what from outside."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from app.db import Model

ROLES = ("viewer", "operator", "producer", "actor")


class Token(Model):
    """Its secret is known to its holder only; the hash is of 256 random bits, which nobody guesses."""

    __tablename__ = "token"
    __table_args__ = (
        sa.CheckConstraint("role in ('viewer', 'operator', 'producer', 'actor')", name="role_known"),
        sa.CheckConstraint("role in ('producer', 'actor') or scope is null", name="scope_of_narrow_roles"),
    )

    name: Mapped[str] = mapped_column(primary_key=True)
    hash: Mapped[bytes] = mapped_column(unique=True)
    role: Mapped[str]
    #: Names that it is narrowed to; null: all.
    scope: Mapped[list[str] | None] = mapped_column(ARRAY(sa.Text))
    created_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    created_by: Mapped[str | None]
