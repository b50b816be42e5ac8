"""Entities of a storm: each write of a crate is followed by two stages, one after the other, and by what is done after
the save of the second."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from google.protobuf.wrappers_pb2 import Int64Value
from sqlalchemy.engine import Engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import stages
from tests.chaos import journal
from tests.chaos.journal import Notes, note
from tidemill import Patch, Untouched, Updated, Watched, stage, transaction

CRATES = 12
#: Calls a second of `Stamp`; the queue has one call saved up at most.
RATE = 4
OPEN = (
    "SELECT (SELECT count(*) FROM public.crate WHERE stamped <> written) + (SELECT count(*) FROM tidemill.stage_visit)"
)
#: What was written, and what the stages have saved, each in the transaction that does it.
SCHEMA = """
CREATE TABLE public.written (id int NOT NULL);
CREATE TABLE public.carried_on (stage text NOT NULL, id int NOT NULL, value int NOT NULL);
CREATE FUNCTION public.note_saved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF new.weighed <> old.weighed THEN INSERT INTO public.carried_on VALUES ('weigh', new.id, new.weighed); END IF;
    IF new.stamped <> old.stamped THEN INSERT INTO public.carried_on VALUES ('stamp', new.id, new.stamped); END IF;
    RETURN new;
END $$;
CREATE TRIGGER note_saved AFTER UPDATE ON public.crate FOR EACH ROW EXECUTE FUNCTION public.note_saved();
"""
_WRITTEN = sa.text("INSERT INTO public.written SELECT unnest(cast(:ids AS int[]))")
_CARRIED_ON = sa.text("SELECT stage, id, value FROM public.carried_on")
_STATES = sa.text("SELECT entity_id::int, value FROM tidemill.stage_state WHERE kind = 'crate' AND stage = 'weigh'")


class Base(DeclarativeBase):
    pass


class Crate(Watched, Base):
    __tablename__ = "crate"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    #: How often it was written; both stages carry it on.
    written: Mapped[int] = mapped_column(server_default="1")
    weighed: Mapped[int] = mapped_column(server_default="0")
    stamped: Mapped[int] = mapped_column(server_default="0")


@stage(Crate, watches={"written"}, state=Int64Value, max_attempts=1000)
class Weigh:
    """Counts in its state how often it was saved. Comes back once by a timer, and then has nothing to do."""

    def should_process(self, crate: Crate, _state: Any) -> bool:
        return crate.weighed != crate.written

    def process(self, crate: Crate, state: Any) -> Updated | Untouched:
        if crate.weighed == crate.written:
            return Untouched()
        crate.weighed = crate.written
        saves = Int64Value(value=(state.value if state else 0) + 1)
        return Updated(crate, state=saves, timer=timedelta(milliseconds=50))


@stage(Crate, watches={"weighed"}, rate_limit=f"{RATE}/s", max_parallel=1, max_attempts=1000)
class Stamp:
    def should_process(self, crate: Crate, _state: Any) -> bool:
        return crate.stamped != crate.weighed

    def process(self, crate: Crate, _state: Any) -> Patch:
        note("stamp", crate.id)
        return Patch({"stamped": crate.weighed}, reads=("weighed",))

    def saved(self, crate: Crate, _state: Any) -> None:
        note("stamped", f"{crate.id} {crate.stamped}")


def create(engine: Engine) -> None:
    with engine.begin() as connection:
        Base.metadata.create_all(connection)
        stages.install(connection, Crate)
        connection.exec_driver_sql(SCHEMA)


def fill() -> None:
    with transaction() as session:
        session.execute(sa.insert(Crate), [{"id": number} for number in range(CRATES)])


def promise(session: Session, dice: random.Random) -> None:
    # In the order of their keys, as whoever changes several must.
    ids = sorted(dice.sample(range(CRATES), 3))
    session.execute(sa.select(Crate.id).where(Crate.id.in_(ids)).order_by(Crate.id).with_for_update())
    session.execute(sa.update(Crate).where(Crate.id.in_(ids)).values(written=Crate.written + 1))
    session.execute(_WRITTEN, {"ids": ids})


def judge(session: Session, notes: Notes) -> None:
    promised = sa.text("SELECT id, count(*) FROM public.written GROUP BY id")
    written = {row[0]: row[1] + 1 for row in session.execute(promised)}
    crates = session.scalars(sa.select(Crate)).all()
    assert {each.id: (each.written, each.weighed, each.stamped) for each in crates} == {
        number: (written.get(number, 1),) * 3 for number in range(CRATES)
    }, "a write was lost, or a visit"
    carried_on = [tuple(row) for row in session.execute(_CARRIED_ON)]
    assert len(set(carried_on)) == len(carried_on), "a stage has saved the same twice"
    states = {number: Int64Value.FromString(bytes(value)).value for number, value in session.execute(_STATES)}
    weighed = [number for stage, number, _ in carried_on if stage == "weigh"]
    assert states == {number: weighed.count(number) for number in range(CRATES)}, "state and entity differ"
    stamped = {f"{number} {value}" for stage, number, value in carried_on if stage == "stamp"}
    assert journal.told(notes, "stamped") == stamped, "a save was not told of, or one that never was"
