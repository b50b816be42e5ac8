"""A watched table whose stages live in another service."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from tidemill import Base, Watched


class Away(Watched, Base):
    __tablename__ = "bench_away"

    id: Mapped[str] = mapped_column(primary_key=True)
    visits: Mapped[int]
    writes: Mapped[int]
    name: Mapped[str]
