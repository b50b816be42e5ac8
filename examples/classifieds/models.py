"""The site's own table, in the user's schema, and the trigger on it that makes its rows entities."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from tidemill import Base, Watched, stages, transaction

DRAFT, ON_AIR, TAKEN_DOWN = "draft", "on air", "taken down"


class Offer(Watched, Base, kind="offer"):
    """`version` comes with `Watched`; the database counts it."""

    __tablename__ = "classifieds_offer"

    id: Mapped[str] = mapped_column(primary_key=True)
    seller: Mapped[str]
    #: A word of the catalogue, in the version of it that the offer was written for.
    category: Mapped[str]
    catalogue: Mapped[int]
    year: Mapped[int]
    mileage: Mapped[int]
    price: Mapped[int]
    predicted_price: Mapped[int | None]
    #: From 0 to 100, as another service rates it: `examples/remote_python`.
    quality: Mapped[int | None]
    status: Mapped[str] = mapped_column(default=DRAFT, server_default=DRAFT)
    published_at: Mapped[datetime | None] = mapped_column(sa.TIMESTAMP(timezone=True))
    #: Each with `url`, and, once it was fetched, `stored` and `angle`.
    photos: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, default=list, server_default=sa.text("'[]'"))
    video: Mapped[str | None]


def create_tables() -> None:
    """In a project with Alembic, a migration calls `stages.install`."""
    with transaction() as session:
        Base.metadata.create_all(session.connection())
        stages.install(session, Offer)


if __name__ == "__main__":
    create_tables()
