"""A drill: processes are started, jobs enqueued and entities written, while everything is killed at random, by a seed.

What was committed is written into `public.promised` in the same transaction. When the killing is over, it all has to
come to its end by itself: judged by whether it still moves, not by how long it takes.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app import db
from app.embedded import OwnServers
from app.errors import DatabaseError
from recovery import invariants
from tests.chaos import caravan, depot
from tests.chaos.havoc import LEASE_SECONDS, Havoc
from tests.kit import tasks
from tests.kit.process import Processes
from tests.kit.waiting import pause, wait_while_it_moves
from tidemill import enqueue, start, transaction

WORKERS, CRATES = 2, 30
#: Of processes and jobs that wait: whoever promises more, waits.
MOST_OPEN = 60
QUICK = {
    "TIDEMILL_LEASE": f"{LEASE_SECONDS}s",
    "TIDEMILL_SWEEP_INTERVAL": "300ms",
    "TIDEMILL_POLL_INTERVAL": "300ms",
    "TIDEMILL_GRACE": "500ms",
    "TIDEMILL_MODULES": f"{tasks.__name__},{caravan.__name__},{depot.__name__}",
    "CARAVAN_LOST": "1",
    "CARAVAN_RAISED": "1",
}
SCHEMA = "CREATE TABLE public.promised (kind text NOT NULL, value text NOT NULL)"
_PROMISED = sa.text("INSERT INTO public.promised VALUES (:kind, :value)")
_OPEN = sa.text(
    "SELECT (SELECT count(*) FROM tidemill.process WHERE state <> 'FINISHED') + (SELECT count(*) FROM tidemill.job)"
)
#: What is left to do; the first four are nothing when all is done. The rest only moves on.
_LEFT = sa.text(
    "SELECT (SELECT count(*) FROM tidemill.process WHERE state <> 'FINISHED') AS processes, "
    "(SELECT count(*) FROM tidemill.job) AS jobs, (SELECT count(*) FROM tidemill.stage_visit) AS visits, "
    "(SELECT count(*) FROM public.crate WHERE stamped <> written) AS crates, "
    "(SELECT count(*) FROM public.accepted) AS accepted"
)
_RAN = sa.text("SELECT DISTINCT value FROM public.execution WHERE ended_at IS NOT NULL OR task = 'in_transaction'")


@dataclass
class Drill:
    seed: int
    seconds: float
    servers: OwnServers
    processes: Processes
    env: dict[str, str]
    told: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        with db.engine().begin() as connection:
            connection.exec_driver_sql(SCHEMA)
            connection.exec_driver_sql(caravan.SCHEMA)
        depot.create(db.engine())
        env = self.env | QUICK
        workers = [self.processes.celery_worker(env, ready=False) for _ in range(WORKERS)]
        scheduler = self.processes.scheduler(env)
        for worker in workers:
            worker.wait_for("ready")
        with transaction() as tx:
            tx.execute(sa.insert(depot.Crate), [{"id": number} for number in range(CRATES)])
        havoc = Havoc(random.Random(self.seed), self.servers, workers, scheduler, self.told)
        over = threading.Event()
        ways = (self._start_processes, self._enqueue_jobs, self._write_crates)
        promising = [threading.Thread(target=self._promise, args=(over, way)) for way in ways]
        for thread in promising:
            thread.start()
        try:
            self._kill(havoc)
        finally:
            over.set()
            for thread in promising:
                thread.join(60)

    def _kill(self, havoc: Havoc) -> None:
        """Every way in turn, shuffled anew in each round; the first round is not cut short."""
        end = time.monotonic() + self.seconds
        rounds = (havoc.dice.sample(havoc.ways, len(havoc.ways)) for _ in itertools.count())
        for done, way in enumerate(itertools.chain.from_iterable(rounds)):
            if time.monotonic() > end and done >= len(havoc.ways):
                return
            havoc.rest()
            havoc.do(way)

    def _promise(self, over: threading.Event, way: Callable[[Session, random.Random, int], None]) -> None:
        dice = random.Random(f"{self.seed}/{way.__name__}")
        number = 0
        while not over.is_set():
            try:
                with transaction() as session:
                    if session.execute(_OPEN).scalar_one() < MOST_OPEN:
                        way(session, dice, number)
                self.told["committed"] += 1
            except (DatabaseError, SQLAlchemyError):
                self.told["database away"] += 1
            number += 1  # also after a failure: it may have been committed
            pause(dice.random() * 0.2)

    def _start_processes(self, session: Session, dice: random.Random, number: int) -> None:
        start(caravan.travel, number, custom_id=str(number), session=session)
        session.execute(_PROMISED, {"kind": "process", "value": str(number)})

    def _enqueue_jobs(self, session: Session, dice: random.Random, number: int) -> None:
        value = uuid.UUID(int=dice.getrandbits(128)).hex
        task = dice.choice([tasks.record, tasks.in_transaction])
        enqueue(task.s(value), session=session, max_attempts=1000)
        session.execute(_PROMISED, {"kind": "job", "value": value})

    def _write_crates(self, session: Session, dice: random.Random, number: int) -> None:
        # In the order of their keys, as whoever changes several must.
        ids = sorted(dice.sample(range(CRATES), 3))
        of_these = sa.update(depot.Crate).where(depot.Crate.id == sa.bindparam("crate"))
        connection = session.connection()
        connection.execute(of_these.values(written=depot.Crate.written + 1), [{"crate": each} for each in ids])
        connection.execute(_PROMISED, [{"kind": "crate", "value": str(each)} for each in ids])

    def calm(self) -> None:
        """Until all is done; fails when nothing moves any more."""

        def left() -> tuple[int, ...]:
            with db.engine().connect() as connection:
                return tuple(connection.execute(_LEFT).one())

        wait_while_it_moves(left, lambda seen: not any(seen[:4]))

    def judge(self) -> None:
        with Session(db.engine()) as session:
            promised = self._promised(session)
            assert all(promised[kind] for kind in ("process", "job", "crate")), promised
            caravan.judge(session, [int(value) for value in promised["process"]])
            assert set(promised["job"]) - set(session.execute(_RAN).scalars()) == set(), "jobs were lost"
            written = {each.id: each.written - 1 for each in session.scalars(sa.select(depot.Crate))}
            assert written == {number: promised["crate"][str(number)] for number in range(CRATES)}
            assert invariants.check(session) == []
            self.told.update({kind: sum(values.values()) for kind, values in promised.items()})

    @staticmethod
    def _promised(session: Session) -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {"process": Counter(), "job": Counter(), "crate": Counter()}
        for kind, value in session.execute(sa.text("SELECT kind, value FROM public.promised")):
            found[kind][value] += 1
        return found
