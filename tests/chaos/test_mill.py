"""Writers and workers of stages, where workers die and stand still at random: no write is lost and no visit, no two
stages work on one entity, no limit is passed, nothing waits in a circle."""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf.wrappers_pb2 import Int64Value
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import db
from recovery import invariants
from tests.chaos import mill
from tests.chaos.mill import Cog, Gear
from tests.kit.process import Process, Processes
from tests.kit.waiting import pause, wait_until
from tidemill import transaction

WRITERS, WORKERS, WHEELS = 4, 8, 60
_RAISED = sa.text("INSERT INTO public.raised (kind, id) SELECT :kind, unnest(cast(:ids AS int[]))")


class _RolledBack(Exception):
    """On purpose."""


class Mill:
    def __init__(self, seed: int, env: dict[str, str], processes: Processes) -> None:
        self.seed, self.env, self.processes = seed, env, processes
        self.over = threading.Event()
        self.told: Counter[str] = Counter()
        self.errors: list[Exception] = []

    def grind(self, seconds: float) -> dict[str, int]:
        deadlocks = _deadlocks()
        code = f"from tests.chaos import mill; mill.main({WORKERS}, '{self.seed}')"
        workers = self.processes.python(code, self.env | {"TIDEMILL_LEASE": "1s"}, "mill")
        wait_until(lambda: _has_begun(workers), 90, "the workers are there")
        writers = [threading.Thread(target=self._write, args=(f"{self.seed}/{number}",)) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        pause(seconds)
        self.over.set()
        for writer in writers:
            writer.join(60)
        with transaction() as tx:
            tx.execute(sa.text("INSERT INTO public.calm VALUES (now())"))
        assert self.errors == []
        wait_until(lambda: _at_rest(workers), 90, "all wheels have come to rest")
        workers.terminate()
        assert workers.wait(60) == 0, workers.log
        self.told.update(json.loads(workers.log.strip().splitlines()[-1]))
        assert _deadlocks() == deadlocks
        return self.told

    def _write(self, seed: str) -> None:
        dice = random.Random(seed)
        ways: list[Callable[[Session, Any, random.Random], None]] = [self._one, self._one, self._some, self._anew]
        try:
            while not self.over.is_set():
                try:
                    with transaction() as tx:
                        dice.choice(ways)(tx, dice.choice((Cog, Cog, Gear)), dice)
                        if dice.random() < 0.1:
                            raise _RolledBack
                    self.told["committed"] += 1
                except _RolledBack:
                    self.told["rolled back"] += 1
                pause(dice.random() * 0.03)
        except Exception as error:  # noqa: BLE001 - told by the thread of the test
            self.errors.append(error)

    def _one(self, tx: Session, kind: Any, dice: random.Random) -> None:
        wheel = tx.get(kind, dice.randrange(WHEELS), with_for_update=True)
        if wheel is None:
            # While it waited for the lock, another writer made the entity anew.
            raise _RolledBack
        wheel.generation += 1
        tx.execute(_RAISED, {"kind": kind.__tablename__, "ids": [wheel.id]})

    def _some(self, tx: Session, kind: Any, dice: random.Random) -> None:
        """In the order of their keys, as whoever changes several must."""
        ids = sorted(dice.sample(range(WHEELS), 10))
        # Of those that are made anew just now, the new ones are not locked.
        ids = list(tx.scalars(sa.select(kind.id).where(kind.id.in_(ids)).order_by(kind.id).with_for_update()))
        tx.execute(sa.update(kind).where(kind.id.in_(ids)).values(generation=kind.generation + 1))
        tx.execute(_RAISED, {"kind": kind.__tablename__, "ids": ids})

    def _anew(self, tx: Session, kind: Any, dice: random.Random) -> None:
        """An entity ends, and another begins under its id."""
        number = dice.randrange(WHEELS)
        if tx.scalars(sa.delete(kind).where(kind.id == number).returning(kind.id)).one_or_none() is None:
            raise _RolledBack
        tx.execute(sa.insert(kind).values(id=number))
        gone = sa.text("DELETE FROM public.raised WHERE kind = :kind AND id = :id")
        tx.execute(gone, {"kind": kind.__tablename__, "id": number})


def _rows(query: str) -> Any:
    with db.engine().connect() as connection:
        return connection.exec_driver_sql(query).all()


def _deadlocks() -> int:
    return int(_rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0])


def _has_begun(workers: Process) -> bool:
    assert workers.status is None, workers.log
    return bool(_rows("SELECT 1 FROM cog WHERE first > 0 LIMIT 1"))


def _at_rest(workers: Process) -> bool:
    assert workers.status is None, workers.log
    return not _rows("SELECT 1 FROM tidemill.stage_visit LIMIT 1")


def _judge() -> None:
    assert _rows("SELECT * FROM public.broken") == []
    for kind in (Cog, Gear):
        raised = sa.text("SELECT id, count(*) FROM public.raised WHERE kind = :kind GROUP BY id")
        with Session(db.engine()) as session:
            found = session.execute(raised, {"kind": kind.__tablename__})
            times: dict[int, int] = {row[0]: row[1] for row in found}
            wheels: Sequence[Any] = session.scalars(sa.select(kind)).all()
        assert len(wheels) == WHEELS
        assert {each.id: each.generation - 1 for each in wheels if each.generation > 1} == times, "a write was lost"
        behind = [each.id for each in wheels if {each.first, each.second, each.third} != {each.generation}]
        assert behind == [], f"a visit of {kind.__tablename__} was lost"
    states = _rows(
        "SELECT state.version - made.version + 1, value FROM tidemill.stage_state state "
        "JOIN public.made USING (kind, entity_id, stage) WHERE stage IN ('first', 'gear_first')"
    )
    assert states
    for saves, value in states:
        assert Int64Value.FromString(bytes(value)).value == saves, "a state was saved twice, or not at all"
    with Session(db.engine()) as session:
        assert invariants.check(session) == []
    assert _rows("SELECT * FROM tidemill.entity_guard") == []


def _grind(seed: int, seconds: float, env: dict[str, str], processes: Processes) -> dict[str, int]:
    mill.create(db.engine())
    with transaction() as tx:
        for kind in (Cog, Gear):
            tx.execute(sa.insert(kind), [{"id": number} for number in range(WHEELS)])
    told = Mill(seed, env, processes).grind(seconds)
    _judge()
    return told


def test_the_mill(env: dict[str, str], engine: Engine, processes: Processes) -> None:  # S7 S9 S10 S12 S15
    told = _grind(20260801, 10, env, processes)
    assert min(told[each] for each in ("committed", "rolled back", "crashed", "frozen")) > 0, told
    assert told.keys() <= {"committed", "rolled back", "crashed", "frozen", "forked", "ended"}, told


@pytest.mark.chaos
def test_the_mill_for_long(env: dict[str, str], engine: Engine, processes: Processes) -> None:
    """`make chaos SECONDS=600 SEED=7`"""
    seed = int(os.environ.get("SEED") or int.from_bytes(os.urandom(4)))
    print(f"seed {seed}", flush=True)
    told = _grind(seed, float(os.environ.get("SECONDS") or 120), env, processes)
    print(f"seed {seed}: {dict(told)}", flush=True)
