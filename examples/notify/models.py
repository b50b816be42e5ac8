"""What was sent. The sending itself, by mail or to a telephone, would be a job that is enqueued with the row."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from tidemill import Base, transaction


class Notification(Base):
    __tablename__ = "notify_sent"
    # One event, one notification: a second one would be an error for all to see.
    __table_args__ = (sa.UniqueConstraint("offer_id", "sequence"),)

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    offer_id: Mapped[str]
    #: Of the event.
    sequence: Mapped[int] = mapped_column(sa.BigInteger)
    seller: Mapped[str]
    about: Mapped[str]
    text: Mapped[str]
    sent_at: Mapped[datetime] = mapped_column(sa.TIMESTAMP(timezone=True), server_default=sa.func.now())


def create_tables() -> None:
    with transaction() as session:
        Base.metadata.create_all(session.connection(), tables=[Base.metadata.tables[Notification.__tablename__]])
