"""A table like that of stage visits, to test claims on: a composite key, no ranks, two lanes, and a merge rule.

Offers while it waits keep the earliest time. While it runs they are collected in `again_at`, and nothing else changes;
when its work is done it waits from then on, or goes; when it goes back undone, it waits from the earliest of both.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from app.claims import Claimable, Lane, claim_indexes, when
from app.db import Model as Own


class Tables(DeclarativeBase):
    metadata = sa.MetaData(schema="public", naming_convention=Own.metadata.naming_convention)
    type_annotation_map = Own.type_annotation_map


class Visit(Claimable, Tables):
    __tablename__ = "visit"
    RANKED = False

    kind: Mapped[str] = mapped_column(primary_key=True)
    entity_id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    stage: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(server_default="waiting")
    due_at: Mapped[datetime | None] = mapped_column()  # without it the default of `Claimable` would hold
    low_at: Mapped[datetime | None]
    again_at: Mapped[datetime | None]

    @classmethod
    def ready(cls, lane: Lane) -> sa.ColumnElement[datetime]:
        return when(cls.due_at if lane is Lane.MAIN else cls.low_at, cls.not_before)

    @classmethod
    def asked_again(cls) -> sa.ColumnElement[bool] | None:
        return cls.again_at.is_not(None)

    @classmethod
    def released(cls) -> dict[str, Any]:
        return {"due_at": sa.func.least(cls.due_at, cls.again_at), "again_at": None}

    @classmethod
    def renewed(cls) -> dict[str, Any]:
        return {"due_at": cls.again_at, "low_at": None, "again_at": None, "not_before": None}

    @classmethod
    def exhausted(cls) -> sa.ColumnElement[bool]:
        return cls.attempts >= 3


claim_indexes(Visit, Lane.MAIN, Lane.LOW)


class Entity(NamedTuple):
    """The key of a visit."""

    kind: str
    entity_id: int
    stage: str


def entity(number: int, stage: str = "check") -> Entity:
    return Entity("ad", number, stage)


def offer(session: Session, key: Entity, at: datetime, lane: Lane = Lane.MAIN) -> None:
    asked = {"due_at" if lane is Lane.MAIN else "low_at": at}
    running = Visit.state == "running"
    insert = postgresql.insert(Visit).values(**key._asdict(), queue=key.stage, **asked)
    merged: dict[str, Any] = {
        name: sa.case((running, getattr(Visit, name)), else_=sa.func.least(getattr(Visit, name), insert.excluded[name]))
        for name in asked
    }
    merged["again_at"] = sa.case((running, sa.func.least(Visit.again_at, at)), else_=Visit.again_at)
    session.execute(insert.on_conflict_do_update(index_elements=["kind", "entity_id", "stage"], set_=merged))
