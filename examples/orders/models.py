"""The shop's own tables, in the user's schema."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from tidemill import Base, transaction

PLACED, SHIPPED, CANCELLED = "placed", "shipped", "cancelled"


class Order(Base):
    __tablename__ = "orders_order"

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    customer: Mapped[str]
    #: What is to be shipped from each warehouse, by its price.
    parts: Mapped[dict[str, int]] = mapped_column(JSONB)
    status: Mapped[str] = mapped_column(default=PLACED, server_default=PLACED)

    @property
    def amount(self) -> int:
        return sum(self.parts.values())


class Effect(Base):
    """What happened outside of Tidemill: a bank, couriers and a mail server would keep such a list each."""

    __tablename__ = "orders_effect"

    #: What the caller calls the same when it asks again.
    key: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    order_id: Mapped[int] = mapped_column(sa.BigInteger, index=True)
    #: A warehouse, or what a mail is about.
    about: Mapped[str] = mapped_column(default="")
    amount: Mapped[int] = mapped_column(default=0)
    #: How often it was asked for. It happened once.
    asked: Mapped[int] = mapped_column(default=1)
    at: Mapped[datetime] = mapped_column(sa.TIMESTAMP(timezone=True), server_default=sa.func.now())


def create_tables() -> None:
    with transaction() as session:
        Base.metadata.create_all(session.connection())
