"""The warehouse's own tables, in the user's schema."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from tidemill import Base, transaction

Moment = sa.TIMESTAMP(timezone=True)


class Fact(Base):
    """Something that happened, in one data set of one layer; `raw.orders` and `staging.orders` are two."""

    __tablename__ = "warehouse_fact"
    __table_args__ = (sa.Index("warehouse_fact_dataset", "dataset", "at"),)

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    dataset: Mapped[str]
    at: Mapped[datetime] = mapped_column(Moment)
    amount: Mapped[int]


class Figure(Base):
    """A line of a mart. Increments are added to it: one that came twice would show."""

    __tablename__ = "warehouse_figure"

    mart: Mapped[str] = mapped_column(primary_key=True)
    period: Mapped[datetime] = mapped_column(Moment, primary_key=True)
    facts: Mapped[int]
    amount: Mapped[int] = mapped_column(sa.BigInteger)


class Increment(Base):
    """What one run took from one data set: what is new after `since` (None: from the beginning) up to `until`."""

    __tablename__ = "warehouse_increment"
    __table_args__ = (sa.Index("warehouse_increment_task", "task", "source", "id"),)

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    task: Mapped[str]
    source: Mapped[str]
    target: Mapped[str]
    since: Mapped[datetime | None] = mapped_column(Moment)
    until: Mapped[datetime] = mapped_column(Moment)
    facts: Mapped[int]


class Note(Base):
    """What the tasks that watch have to say."""

    __tablename__ = "warehouse_note"

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    at: Mapped[datetime] = mapped_column(Moment, server_default=sa.func.now())
    task: Mapped[str]
    text: Mapped[str]


def create_tables() -> None:
    with transaction() as session:
        Base.metadata.create_all(session.connection())
