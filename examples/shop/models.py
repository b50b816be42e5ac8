"""The shop's own tables, in the user's schema."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from tidemill import Base, transaction


class Order(Base):
    __tablename__ = "shop_order"

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    customer: Mapped[str]
    amount: Mapped[int]
    paid_at: Mapped[datetime | None] = mapped_column(sa.TIMESTAMP(timezone=True))


class Mail(Base):
    """The shop's outbox. No foreign key: it would show a mail for an order that never was."""

    __tablename__ = "shop_mail"

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    order_id: Mapped[int] = mapped_column(sa.BigInteger, index=True)


class View(Base):
    """How often the page of an order was looked at."""

    __tablename__ = "shop_view"

    order_id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    count: Mapped[int]


def create_tables() -> None:
    with transaction() as session:
        Base.metadata.create_all(session.connection())
