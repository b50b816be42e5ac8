"""Entities of a user's module: each write of a crate is followed by two stages, one after the other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy.engine import Engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import stages
from tidemill import Patch, Untouched, Updated, Watched, stage


class Base(DeclarativeBase):
    pass


class Crate(Watched, Base):
    __tablename__ = "crate"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    #: How often it was written; both stages carry it on.
    written: Mapped[int] = mapped_column(server_default="1")
    weighed: Mapped[int] = mapped_column(server_default="0")
    stamped: Mapped[int] = mapped_column(server_default="0")


@stage(Crate, watches={"written"}, max_attempts=1000)
class Weigh:
    """Comes back once by a timer, and then has nothing to do."""

    def should_process(self, crate: Crate, _state: Any) -> bool:
        return crate.weighed != crate.written

    def process(self, crate: Crate, _state: Any) -> Updated | Untouched:
        if crate.weighed == crate.written:
            return Untouched()
        crate.weighed = crate.written
        return Updated(crate, timer=timedelta(milliseconds=50))


@stage(Crate, watches={"weighed"}, max_attempts=1000)
class Stamp:
    def should_process(self, crate: Crate, _state: Any) -> bool:
        return crate.stamped != crate.weighed

    def process(self, crate: Crate, _state: Any) -> Patch:
        return Patch({"stamped": crate.weighed}, reads=("weighed",))


def create(engine: Engine) -> None:
    with engine.begin() as connection:
        Base.metadata.create_all(connection)
        stages.install(connection, Crate)
