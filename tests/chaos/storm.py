"""A storm over all paths: jobs (`freight`), reactive tasks (`tide`), stages (`depot`) and processes (`caravan`), whose
units of work are committed and rolled back, while everything is broken by a plan that is a function of a seed.

All programs, those that promise work included, reach Postgres and the broker through proxies. When the storm is over,
all that was committed comes to its end by itself: judged by whether it still moves, not by how long it takes.
"""

from __future__ import annotations

import pathlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app import db, limits
from app.embedded import OwnServers
from app.errors import DatabaseError, MovesBack
from processes.model import queue_of
from recovery import invariants
from tests.chaos import caravan, depot, freight, journal, ledger, skew, tide
from tests.chaos.havoc import CLOCKS, Havoc
from tests.chaos.plan import LEASE_SECONDS, Blow
from tests.kit import tasks, warehouse
from tests.kit.process import Process, Processes
from tests.kit.proxy import Proxy, rerouted
from tests.kit.waiting import pause, wait_until, wait_while_it_moves
from tidemill import transaction
from triggers import pools

WORKERS = 2
MODULES = (tasks, warehouse, freight, depot, caravan)
QUICK = {
    "TIDEMILL_LEASE": f"{LEASE_SECONDS}s",
    "TIDEMILL_SWEEP_INTERVAL": "300ms",
    "TIDEMILL_POLL_INTERVAL": "300ms",
    "TIDEMILL_GRACE": "500ms",
    "TIDEMILL_MODULES": ",".join(module.__name__ for module in MODULES),
    "CARAVAN_LOST": "1",
    "CARAVAN_RAISED": "1",
}
#: Calls a second, and claims at once, of the queues that `depot` says nothing of.
ADD_RATE, RUN_RATE, ADD_PARALLEL, RUNS_PARALLEL, JOBS_PARALLEL = 10, 4, 2, 2, 3
#: Of a hundred transactions.
ROLLED_BACK = 15
Promise = Callable[[Session, random.Random], None]
#: What moves while work is done, though none of it may be open less.
_MOVED = (
    "SELECT count(*) FROM tidemill.job_log",
    "SELECT count(*) FROM public.accepted",
    "SELECT count(*) FROM public.execution",
    "SELECT count(*) FROM public.carried_on",
)
_OLD = sa.text(
    "SELECT pid, state, query FROM pg_stat_activity WHERE datname = current_database() AND xact_start < :since"
)
#: For people: how much of a storm it was.
_TROUBLE = sa.text(
    "SELECT 'job ' || outcome::text, count(*) FROM tidemill.job_log GROUP BY 1 UNION ALL "
    "SELECT 'run ' || state::text, count(*) FROM tidemill.run GROUP BY 1 UNION ALL "
    "SELECT 'answer ' || CASE WHEN refused IS NULL THEN 'failed' ELSE 'refused' END, count(*) "
    "FROM tidemill.answer GROUP BY 1 UNION ALL SELECT 'repaired: ' || finding, count(*) FROM tidemill.repair GROUP BY 1"
)


class _RolledBack(Exception):
    """On purpose."""


@dataclass(frozen=True)
class Path:
    """One of the four reasons for which work runs."""

    promise: Promise
    #: How much of it is not at its end; with so much of it, nothing more is promised.
    open: str
    most: int
    #: Between two promises, at most.
    seconds: float


PATHS = {
    "jobs": Path(freight.promise, freight.OPEN, 40, 0.1),
    "reactive": Path(tide.promise, tide.OPEN, 40, 0.15),
    "stages": Path(depot.promise, depot.OPEN, 100, 0.3),
    "processes": Path(caravan.promise, caravan.OPEN, 25, 0.3),
}


@dataclass
class Storm:
    seed: int
    plan: tuple[Blow, ...]
    servers: OwnServers
    database: Proxy
    broker: Proxy
    programs: Processes
    env: dict[str, str]
    journal: pathlib.Path
    told: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.over = threading.Event()
        self.begun = time.monotonic()
        self._threads: list[threading.Thread] = []

    def rage(self) -> None:
        self._create()
        workers, scheduler = self._start()
        self.begun = time.monotonic()
        depot.fill()
        for name, path in PATHS.items():
            self._aside(self._promise, name, path)
        more = {"long_transaction": self._long_transaction, "cancel_a_run": self._cancel_a_run}
        direct = db.new_engine(rerouted(self.env["TIDEMILL_DATABASE_URL"], self.servers.postgres.port), pool_size=1)

        def done() -> int:
            with direct.connect() as connection:
                return sum(connection.exec_driver_sql(each).scalar_one() for each in _MOVED)

        havoc = Havoc(self.servers, self.database, self.broker, workers, scheduler, more, done, self.told)
        try:
            havoc.wreak(self.plan)
        finally:
            direct.dispose()
            self.over.set()
            for thread in self._threads:
                thread.join(120)
        assert not any(thread.is_alive() for thread in self._threads)

    def _create(self) -> None:
        depot.create(db.engine())
        with db.engine().begin() as connection:
            for schema in (freight.SCHEMA, tide.SCHEMA, caravan.SCHEMA, ledger.SCHEMA):
                connection.exec_driver_sql(schema)
        with transaction() as session:
            limits.configure(session, "jobs", max_parallel=JOBS_PARALLEL)
            limits.configure(session, queue_of("add"), max_parallel=ADD_PARALLEL, rate=f"{ADD_RATE}/s")
        pools.configure("default", max_parallel=RUNS_PARALLEL, rate_limit=f"{RUN_RATE}/s")

    def _start(self) -> tuple[list[Process], Process]:
        dice = random.Random(f"{self.seed}/clocks")
        env = self.env | QUICK | {journal.PLACE: str(self.journal)}

        def clock() -> tuple[str, ...]:
            return tuple(skew.celery(dice.choice(CLOCKS)))

        workers = [self.programs.celery_worker(env, ready=False, program=clock()) for _ in range(WORKERS)]
        scheduler = self.programs.scheduler(env, program=clock())
        for worker in workers:
            worker.wait_for("ready")
        return workers, scheduler

    def _aside(self, act: Callable[..., None], *arguments: object) -> None:
        """Nothing that waits for the database may keep the havoc waiting, which alone can bring it back."""
        thread = threading.Thread(target=act, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _promise(self, name: str, path: Path) -> None:
        dice = random.Random(f"{self.seed}/{name}")
        while not self.over.is_set():
            with self._perhaps(name), transaction() as session:
                if session.execute(sa.text(path.open)).scalar_one() < path.most:
                    path.promise(session, dice)
                    if dice.random() * 100 < ROLLED_BACK:
                        raise _RolledBack
                    self.told[f"promised {name}"] += 1
            pause(dice.random() * path.seconds)

    @contextmanager
    def _perhaps(self, name: str) -> Iterator[None]:
        try:
            yield
        except _RolledBack:
            self.told["rolled back"] += 1
        except MovesBack:
            # Whoever waited for a lock comes with an older moment.
            self.told["moved back"] += 1
        except (DatabaseError, SQLAlchemyError):
            self.told[f"no database for {name}"] += 1
            pause(0.05)

    @contextmanager
    def _long_transaction(self, blow: Blow) -> Iterator[None]:
        """Work of every kind that is committed late, or never, with a snapshot and locks for all that time."""
        over = threading.Event()
        self._aside(self._hold_open, blow, over)
        yield
        over.set()

    def _hold_open(self, blow: Blow, over: threading.Event) -> None:
        dice = random.Random(f"{self.seed}/{blow}")
        with self._perhaps("a long transaction"), transaction() as session:
            tide.promise_late(session)
            for promise in (freight.promise, depot.promise, caravan.promise):
                promise(session, dice)
            over.wait()
            if dice.random() < 0.3:
                raise _RolledBack
        self.told["long transactions ended"] += 1

    @contextmanager
    def _cancel_a_run(self, blow: Blow) -> Iterator[None]:
        def cancel() -> None:
            with self._perhaps("an operator"):
                tide.cancel_one(blow.dice)

        self._aside(cancel)
        yield

    def calm(self) -> None:
        """Until all is done; fails when nothing moves any more."""
        tide.release()
        looks = [path.open for path in PATHS.values()]

        def look() -> tuple[int, ...]:
            with db.engine().connect() as connection:
                return tuple(connection.exec_driver_sql(each).scalar_one() for each in (*looks, *_MOVED))

        wait_while_it_moves(look, lambda seen: not any(seen[: len(looks)]))
        with db.engine().connect() as connection:
            now = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        wait_until(lambda: self._rows(_OLD, since=now) == [], 120, "no transaction is left over")

    @staticmethod
    def _rows(query: sa.TextClause, **values: object) -> list[tuple[object, ...]]:
        with db.engine().connect() as connection:
            return [tuple(row) for row in connection.execute(query, values)]

    def judge(self) -> None:
        notes = journal.read(self.journal)
        with Session(db.engine()) as session:
            assert invariants.check(session) == []
            freight.judge(session, notes)
            tide.judge(session)
            depot.judge(session, notes)
            caravan.judge_departed(session, notes)
            ledger.judge(session)
            for what, number in session.execute(_TROUBLE):
                self.told[what] = number
        for kind, rate in (("stamp", depot.RATE), ("add", ADD_RATE)):
            ledger.judge_calls([at - self.begun for at, _ in notes[kind]], rate)
