"""Adverts that a local stage counts and a stage in another service scores; declared as a user would do it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import stages
from stages import Patch, Watched, stage

MODULES = __name__
#: What the service answers about each of them.
SCORED = {"*": {"set": {"scored": "yes"}}}


class Base(DeclarativeBase):
    pass


class Advert(Watched, Base):
    __tablename__ = "advert"

    id: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int]
    counted: Mapped[int | None]
    scored: Mapped[str | None]


@stage(Advert, watches={"number"})
class Count:
    def should_process(self, advert: Advert, _state: Any) -> bool:
        return advert.counted != advert.number

    def process(self, advert: Advert, _state: Any) -> Patch:
        return Patch({"counted": advert.number})


def create(engine: Engine) -> None:
    with engine.begin() as connection:
        Base.metadata.create_all(connection)
        stages.install(connection, Advert)


def file(directory: Path, address: str, more: str = "plaintext = true") -> Path:
    """What TIDEMILL_REMOTE_STAGES names."""
    path = directory / "remote.toml"
    path.write_text(
        f'[[stage]]\nkind = "advert"\nname = "score"\naddresses = ["{address}"]\nwatches = ["number"]\n'
        f'time_limit = "1500ms"\n{more}\n'
    )
    return path


def put(session: Session, names: Iterable[str]) -> None:
    session.execute(sa.insert(Advert), [{"id": each, "number": 1} for each in names])
    session.commit()


def counted(session: Session, condition: str) -> int:
    session.rollback()
    query = sa.select(sa.func.count()).select_from(Advert).where(sa.text(condition))
    return int(session.execute(query).scalar_one())


def left(session: Session, condition: str = "true") -> int:
    """In the queues of stages."""
    session.rollback()
    query = sa.select(sa.func.count()).select_from(sa.text("tidemill.stage_visit")).where(sa.text(condition))
    return int(session.execute(query).scalar_one())
