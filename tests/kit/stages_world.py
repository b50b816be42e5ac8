"""A user's module: watched entities and their stages, for worker processes. Each call of `process` is noted in
`public.visited`, in a transaction of its own, so that a test can count.

`parcel` (exclusive): a chain of three, weigh → price → remind, the last of which sets a timer, and tells of its
saves in `public.told`.
`door` (exclusive): one stage that does what the entity says: wait at a gate, fail, take its process along.
`guest` (optimistic): two stages with limits.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from google.protobuf.wrappers_pb2 import Int64Value
from sqlalchemy.engine import Connection, Engine, Row
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import stages
from app.db import autocommit
from tests.kit import tasks
from tests.kit.waiting import pause, wait_for_file, wait_until
from tidemill import Patch, Untouched, Updated, Watched, stage, this_job

MODULES = f"{tasks.__name__},{__name__}"
REMINDER = timedelta(milliseconds=300)
QUEUES = tuple(
    f"stage.{name}"
    for kind, own in {"parcel": ("weigh", "price", "remind"), "door": ("hold",), "guest": ("seat", "feed")}.items()
    for each in ("system", "resweep", *own)
    for name in (f"{kind}.{each}", f"{kind}.{each}.low")
)

TABLES = """
CREATE TABLE public.visited (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stage text NOT NULL,
    entity_id text NOT NULL,
    pid int NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    inside int NOT NULL
);
CREATE TABLE public.told (
    entity_id text NOT NULL,
    version bigint NOT NULL,
    reminded boolean NOT NULL,
    state text,
    key text UNIQUE
);
CREATE TABLE public.gate (name text PRIMARY KEY);
"""
_BEGUN = sa.text(
    "INSERT INTO public.visited (stage, entity_id, pid, inside) VALUES (:stage, :id, :pid, 1 + "
    "(SELECT count(*) FROM public.visited WHERE stage = :stage AND ended_at IS NULL)) RETURNING id"
)
_TOLD = sa.text("INSERT INTO public.told VALUES (:id, :version, :reminded, :state, :key)")
_ENDED = sa.text("UPDATE public.visited SET ended_at = clock_timestamp() WHERE id = :id")


class Base(DeclarativeBase):
    pass


class Parcel(Watched, Base):
    __tablename__ = "parcel"

    id: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[int]
    weight: Mapped[int | None]
    price: Mapped[int | None]
    reminded: Mapped[bool] = mapped_column(server_default=sa.false())


class Door(Watched, Base):
    __tablename__ = "door"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    way: Mapped[str] = mapped_column(server_default="")
    wanted: Mapped[int] = mapped_column(server_default="1")
    made: Mapped[int] = mapped_column(server_default="0")


class Guest(Watched, Base, mode="optimistic"):
    __tablename__ = "guest"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    seated: Mapped[bool] = mapped_column(server_default=sa.false())
    fed: Mapped[bool] = mapped_column(server_default=sa.false())


@contextmanager
def noted(stage: str, entity_id: object) -> Iterator[None]:
    """The row is there when the call begins, and says when it ended well; and how many were inside then."""
    with autocommit() as connection:
        row = connection.execute(_BEGUN, {"stage": stage, "id": str(entity_id), "pid": os.getpid()}).scalar_one()
    yield
    with autocommit() as connection:
        connection.execute(_ENDED, {"id": row})


def _gate_is_open(name: str) -> bool:
    with autocommit() as connection:
        return bool(connection.execute(sa.text("SELECT 1 FROM public.gate WHERE name = :n"), {"n": name}).first())


@stage(Parcel, watches={"size"}, state=Int64Value)
class Weigh:
    """Keeps how often it has weighed."""

    def should_process(self, parcel: Parcel, _state: Any) -> bool:
        return parcel.weight != parcel.size * 2

    def process(self, parcel: Parcel, state: Any) -> Updated | Untouched:
        with noted("weigh", parcel.id):
            if parcel.weight == parcel.size * 2:
                return Untouched()
            parcel.weight = parcel.size * 2
            return Updated(parcel, state=Int64Value(value=(state.value if state else 0) + 1))


@stage(Parcel, watches={"weight"})
class Price:
    def should_process(self, parcel: Parcel, _state: Any) -> bool:
        return parcel.weight is not None and parcel.price != parcel.weight + 1

    def process(self, parcel: Parcel, _state: Any) -> Patch | Untouched:
        with noted("price", parcel.id):
            if parcel.weight is None:
                return Untouched()
            return Patch({"price": parcel.weight + 1}, reads=("weight",))


@stage(Parcel, watches={"price"}, state=Int64Value)
class Remind:
    """Some time after the first price; its state says that the timer was set."""

    def should_process(self, parcel: Parcel, state: Any) -> bool:
        return state is None and not parcel.reminded

    def process(self, parcel: Parcel, state: Any) -> Updated | Untouched:
        with noted("remind", parcel.id):
            if parcel.reminded:
                return Untouched(state=None)
            if state is None:
                return Untouched(timer=REMINDER, state=Int64Value(value=1))
            parcel.reminded = True
            return Updated(parcel, state=None)

    def saved(self, parcel: Parcel, state: Any) -> None:
        """Once for each save, as it commits together with the end of its job."""
        job = this_job()
        with job.transaction() as tx:
            words = {"id": parcel.id, "version": parcel.version, "reminded": parcel.reminded}
            tx.execute(
                _TOLD, words | {"state": None if state is None else str(state.value), "key": job.idempotency_key}
            )


@stage(Door, watches={"wanted"}, max_attempts=3)
class Hold:
    def should_process(self, door: Door, _state: Any) -> bool:
        return door.made != door.wanted

    def process(self, door: Door, _state: Any) -> Updated:
        with noted("hold", door.id):
            match door.way.partition(":")[0]:
                case "gate":
                    wait_until(lambda: _gate_is_open("hold"), 300)
                case "slow":
                    pause(0.4)
                case "silent":  # without the database
                    pause(2)
                case "file":  # until it is there, without the database
                    wait_for_file(door.way.partition(":")[2])
                case "poison":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "bad":
                    raise RuntimeError("failed on purpose")
                case _:
                    pass
            door.made = door.wanted
            return Updated(door)


@stage(Guest, max_parallel=3)
class Seat:
    def should_process(self, guest: Guest, _state: Any) -> bool:
        return not guest.seated

    def process(self, guest: Guest, _state: Any) -> Patch:
        with noted("seat", guest.id):
            pause(0.02)
        return Patch({"seated": True})


@stage(Guest, rate_limit="20/s")
class Feed:
    def should_process(self, guest: Guest, _state: Any) -> bool:
        return not guest.fed

    def process(self, guest: Guest, _state: Any) -> Patch:
        with noted("feed", guest.id):
            return Patch({"fed": True})


# What tests say and ask.


def create(engine: Engine) -> None:
    """The tables of this module, watched, in a database that is migrated."""
    with engine.begin() as connection:
        connection.exec_driver_sql(TABLES)
        Base.metadata.create_all(connection)
        watch(connection)


def watch(connection: Connection) -> None:
    stages.install(connection, Parcel, Door, Guest)


def open_gate(session: Session) -> None:
    session.execute(sa.text("INSERT INTO public.gate VALUES ('hold')"))
    session.commit()


def doors(session: Session, ids: Sequence[int], way: str = "") -> None:
    """New ones, in one transaction."""
    session.execute(sa.insert(Door), [{"id": each, "way": way} for each in ids])
    session.commit()


def visited(session: Session, stage: str, *, ended: bool = False) -> list[str]:
    """The ids of the entities for which `process` was called, in order."""
    session.rollback()
    done = "AND ended_at IS NOT NULL" if ended else ""
    query = sa.text(f"SELECT entity_id FROM public.visited WHERE stage = :stage {done} ORDER BY id")  # noqa: S608
    return list(session.execute(query, {"stage": stage}).scalars())


def spans(session: Session, stage: str) -> Sequence[Row[Any]]:
    session.rollback()
    query = sa.text("SELECT * FROM public.visited WHERE stage = :stage ORDER BY begun_at")
    return session.execute(query, {"stage": stage}).all()


def told(session: Session) -> int:
    session.rollback()
    return int(session.execute(sa.text("SELECT count(*) FROM told")).scalar_one())


def entries(session: Session, stage: str | None = None) -> Sequence[Row[Any]]:
    """What is in the queues of stages, timers included."""
    session.rollback()
    query = "SELECT * FROM tidemill.stage_visit WHERE :stage IS NULL OR stage = :stage ORDER BY entity_id, stage"
    return session.execute(sa.text(query), {"stage": stage}).all()


def counted(session: Session, condition: str, table: str = "parcel") -> int:
    session.rollback()
    query = sa.text(f"SELECT count(*) FROM public.{table} WHERE {condition}")  # noqa: S608
    return int(session.execute(query).scalar_one())


def registered(session: Session, kind: str) -> bool:
    session.rollback()
    query = sa.text("SELECT count(*) FROM tidemill.stage WHERE kind = :kind AND removed_at IS NULL")
    return bool(session.execute(query, {"kind": kind}).scalar_one())
