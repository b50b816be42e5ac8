"""Entities and stages of the mill, and its workers: `main` forks them, and again those that die.

`cog` is exclusive, and one of its stages has a limit; `gear` is optimistic. Writers raise `generation`; three stages
carry it on, each in a way of its own, so that at rest all four are equal.

While it works on a cog, a worker holds an advisory lock on it, and one of the slots that the limit allows, in a session
of its own: a lock that is taken already is written down as broken. The locks of a worker that dies go with it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg2
from google.protobuf.wrappers_pb2 import Int64Value
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import stages
from app import db, faults
from app.alarm import alarm
from app.settings import settings
from recovery import visits as lost_visits
from stages.serving import VisitServer
from stages.sync import synchronize
from tests.kit.faults import EXIT_STATUS
from tests.kit.waiting import pause
from tidemill import Patch, Untouched, Updated, Watched, stage

SLOTS = 2
#: The part of batches that lose their worker, and of those whose worker is late, over the points that a batch passes.
CRASHES, LATE, PASSED = 0.03, 0.05, 6
SLOW, SLOW_SECONDS = 0.002, 1.3
#: How long a late worker stands still, with a lease of a second.
FROZEN_SECONDS = (1.1, 2.0)
SWEEP_SECONDS = 0.3

TABLES = """
CREATE TABLE public.raised (kind text NOT NULL, id int NOT NULL);
CREATE TABLE public.broken (what text NOT NULL, pid int NOT NULL);
CREATE TABLE public.calm (at timestamptz NOT NULL);
CREATE FUNCTION public.note_theft_of_visit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.broken VALUES ('two claims on ' || old.entity_id || ' in stage ' || old.stage, pg_backend_pid());
    RETURN new;
END $$;
CREATE TRIGGER note_theft AFTER UPDATE ON tidemill.stage_visit FOR EACH ROW
    WHEN (old.pass_key IS NOT NULL AND new.pass_key IS NOT NULL AND old.pass_key <> new.pass_key)
    EXECUTE FUNCTION public.note_theft_of_visit();
CREATE TABLE public.made (kind text, entity_id text, stage text, version bigint, PRIMARY KEY (kind, entity_id, stage));
CREATE FUNCTION public.note_first_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.made VALUES (new.kind, new.entity_id, new.stage, new.version)
    ON CONFLICT (kind, entity_id, stage) DO UPDATE SET version = excluded.version;
    RETURN new;
END $$;
CREATE TRIGGER note_first_state AFTER INSERT ON tidemill.stage_state FOR EACH ROW
    EXECUTE FUNCTION public.note_first_state();
"""


class Base(DeclarativeBase):
    pass


class Wheel:
    """Both kinds."""

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    generation: Mapped[int] = mapped_column(server_default="1")
    first: Mapped[int] = mapped_column(server_default="0")
    second: Mapped[int] = mapped_column(server_default="0")
    third: Mapped[int] = mapped_column(server_default="0")


class Cog(Watched, Wheel, Base):
    __tablename__ = "cog"


class Gear(Watched, Wheel, Base, mode="optimistic"):
    __tablename__ = "gear"


class _Oracle:
    """A session of this process, apart from all that Tidemill opens."""

    def __init__(self) -> None:
        self._connection: Any = None

    def _ask(self, query: str, *values: Any) -> Any:
        if self._connection is None:
            url = make_url(settings().resolved_database_url()).set(drivername="postgresql")
            self._connection = psycopg2.connect(url.render_as_string(hide_password=False))
            self._connection.autocommit = True
        with self._connection.cursor() as cursor:
            cursor.execute(query, values)
            return cursor.fetchone()[0] if cursor.description else None

    def lock(self, space: int, key: int) -> bool:
        return bool(self._ask("SELECT pg_try_advisory_lock(%s, %s)", space, key))

    def unlock(self, space: int, key: int) -> None:
        self._ask("SELECT pg_advisory_unlock(%s, %s)", space, key)

    def broken(self, what: str) -> None:
        self._ask("INSERT INTO public.broken VALUES (%s, %s)", what, os.getpid())

    def calm(self) -> bool:
        return bool(self._ask("SELECT EXISTS (SELECT FROM public.calm)"))


oracle = _Oracle()
dice = random.Random()
ENTITIES, LIMITED = 1, 2


@contextmanager
def _inside(wheel: Any, slots: int | None = None) -> Iterator[None]:
    """Also where the worker is stopped in the middle, the locks are given back."""
    held: list[tuple[int, int]] = []
    try:
        if isinstance(wheel, Cog):
            held.append((ENTITIES, wheel.id))
            if not oracle.lock(*held[-1]):
                held.pop()
                oracle.broken(f"two stages work on cog {wheel.id}")
        if slots is not None:
            held.append((LIMITED, 0))
            free = (key for key in range(slots) if oracle.lock(LIMITED, key))
            held[-1] = (LIMITED, next(free, -1))
            if held[-1][1] < 0:
                held.pop()
                oracle.broken(f"more than {slots} at once")
        if faults._injector is not None:
            if dice.random() < CRASHES / 100:
                os._exit(EXIT_STATUS)
            if dice.random() < SLOW:
                pause(SLOW_SECONDS)
        yield
    finally:
        for each in held:
            oracle.unlock(*each)


class _First:
    """Counts in its state how often it was saved."""

    def should_process(self, wheel: Any, _state: Any) -> bool:
        return bool(wheel.first != wheel.generation)

    def process(self, wheel: Any, state: Any) -> Updated | Untouched:
        with _inside(wheel):
            if wheel.first == wheel.generation:
                return Untouched()
            wheel.first = wheel.generation
            return Updated(wheel, state=Int64Value(value=(state.value if state else 0) + 1))


class _Second:
    def should_process(self, wheel: Any, _state: Any) -> bool:
        return bool(wheel.second != wheel.first)

    def process(self, wheel: Any, _state: Any) -> Patch:
        with _inside(wheel):
            return Patch({"second": wheel.first}, reads=("first",))


class _Third:
    """Comes back once by a timer, and then has nothing to do."""

    slots: int | None = None

    def should_process(self, wheel: Any, _state: Any) -> bool | timedelta:
        return wheel.third != wheel.generation and timedelta(milliseconds=dice.choice((0, 0, 100)))

    def process(self, wheel: Any, _state: Any) -> Updated | Untouched:
        with _inside(wheel, self.slots):
            if wheel.third == wheel.generation:
                return Untouched()
            wheel.third = wheel.generation
            return Updated(wheel, timer=timedelta(milliseconds=50))


@stage(Cog, watches={"generation"}, state=Int64Value, max_attempts=1000)
class First(_First):
    pass


@stage(Cog, watches={"first"}, max_attempts=1000)
class Second(_Second):
    pass


@stage(Cog, watches={"generation", "second"}, max_parallel=SLOTS, max_attempts=1000)
class Third(_Third):
    slots = SLOTS


@stage(Gear, watches={"generation"}, state=Int64Value, max_attempts=1000)
class GearFirst(_First):
    pass


@stage(Gear, watches={"first"}, max_attempts=1000)
class GearSecond(_Second):
    pass


@stage(Gear, watches={"generation", "second"}, max_attempts=1000)
class GearThird(_Third):
    pass


QUEUES = [f"stage.cog.{each}" for each in ("system", "first", "second", "third")]
QUEUES += [f"stage.gear.{each}" for each in ("system", "gear_first", "gear_second", "gear_third")]
#: All of them at times, or those of one of two schedulers.
SHARDS = (None, (0, 7), (8, 15))


def create(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(TABLES)
        Base.metadata.create_all(connection)
        stages.install(connection, Cog, Gear)
    synchronize()


class _Calls:
    def consumes(self, _queue: str) -> bool:
        return True


def _hurt(point: str) -> None:
    """Dies, or stands still until its parent lets it go on: as a machine that is suspended."""
    del point
    chance = dice.random() * PASSED
    if chance < CRASHES:
        os._exit(EXIT_STATUS)
    if chance < CRASHES + LATE:
        os.kill(os.getpid(), signal.SIGSTOP)


class Worker:
    """A child: serves all queues, and sweeps now and then."""

    def __init__(self, name: str) -> None:
        dice.seed(name)
        self.over = False
        signal.signal(signal.SIGTERM, self._end)
        db.become_worker_child()
        alarm.install()
        faults.install(_hurt)
        self.server = VisitServer(_Calls(), name, settings().lease, lambda: self.over)
        self._swept = 0.0

    def _end(self, *_: object) -> None:
        self.over = True

    def run(self) -> None:
        while not self.over:
            if time.monotonic() - self._swept > SWEEP_SECONDS:
                lost_visits.run_once()
                self._swept = time.monotonic()
                if faults._injector is not None and oracle.calm():
                    faults.install(None)
            shards = dice.choice(SHARDS)
            ran = sum(self.server.serve(queue, 500, shards)[0] for queue in dice.sample(QUEUES, len(QUEUES)))
            if not ran:
                pause(0.02)


class Parent:
    def __init__(self, workers: int, seed: str) -> None:
        self.workers, self.seed = workers, seed
        self.over = False
        self.told: Counter[str] = Counter()
        self.children: set[int] = set()
        self.frozen: dict[int, float] = {}
        self.dice = random.Random(seed)
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self.over = True

    def run(self) -> None:
        while not self.over or self.children:
            while not self.over and len(self.children) < self.workers:
                self.children.add(self._fork())
            if self.over:
                for child in self.children:
                    os.kill(child, signal.SIGTERM)
            self._look()
            pause(0.005)
        print(json.dumps(self.told), flush=True)

    def _fork(self) -> int:
        self.told["forked"] += 1
        name = f"mill/{self.seed}.{self.told['forked']}"
        if pid := os.fork():
            return pid
        try:
            Worker(name).run()
        except BaseException:  # noqa: BLE001 - the child must not go on as its parent
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)

    def _look(self) -> None:
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if not pid:
                break
            if os.WIFSTOPPED(status):
                self.told["frozen"] += 1
                self.frozen[pid] = time.monotonic() + self.dice.uniform(*FROZEN_SECONDS)
                continue
            self.children.discard(pid)
            self.frozen.pop(pid, None)
            code = os.waitstatus_to_exitcode(status)
            self.told[{EXIT_STATUS: "crashed", 0: "ended"}.get(code, f"ended with {code}")] += 1
        for pid, until in list(self.frozen.items()):
            if time.monotonic() > until:
                del self.frozen[pid]
                os.kill(pid, signal.SIGCONT)


def main(workers: int, seed: str) -> None:
    db.dispose()
    Parent(workers, seed).run()
