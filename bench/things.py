"""Watched tables and their stages, as a user of the product would write them."""

from __future__ import annotations

import time

from google.protobuf.wrappers_pb2 import Int64Value
from sqlalchemy.orm import Mapped, mapped_column

from bench import stamps
from tidemill import Base, Untouched, Updated, Watched, stage


class Thing(Watched, Base):
    __tablename__ = "bench_thing"

    id: Mapped[str] = mapped_column(primary_key=True)
    visits: Mapped[int]
    writes: Mapped[int]
    name: Mapped[str]


@stage(Thing, watches={"writes"}, state=Int64Value)
class Count:
    """Changes the entity and its state, and as little else as can be."""

    def should_process(self, thing: Thing, state: Int64Value | None) -> bool:  # noqa: ARG002 - every write is wanted
        return True

    def process(self, thing: Thing, state: Int64Value | None) -> Updated:
        thing.visits += 1
        return Updated(thing, state=Int64Value(value=(state.value if state else 0) + 1))


class Lone(Watched, Base):
    __tablename__ = "bench_lone"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


@stage(Lone)
class Stamp:
    """Writes when it began."""

    def should_process(self, lone: Lone, state: None) -> bool:  # noqa: ARG002
        return True

    def process(self, lone: Lone, state: None) -> Untouched:  # noqa: ARG002
        now = time.time_ns()
        stamps.stamp(lone.id, now)
        return Untouched()
