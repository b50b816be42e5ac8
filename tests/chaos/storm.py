"""A storm: producers that commit and roll back, workers, and something that breaks them all at random, by a seed.
Jobs are here, reactive tasks in `tide`.

What was committed is known from the database itself: each producer writes the value of its job into `public.produced`
in the transaction that enqueues it. A trigger notes every claim that passes from one holder to another without having
been given up in between.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app import db
from app.embedded import OwnServers
from app.errors import DatabaseError
from app.jobs.model import Job, JobLog, JobState, Outcome
from recovery import invariants
from tests.chaos.havoc import LEASE_SECONDS, Havoc
from tests.chaos.tide import SCHEMA as TIDE_SCHEMA
from tests.chaos.tide import Tide
from tests.kit import tasks, warehouse
from tests.kit.process import Processes
from tests.kit.waiting import pause, wait_until
from tidemill import enqueue, transaction

PRODUCERS, WORKERS = 4, 3
QUICK = {
    "TIDEMILL_LEASE": f"{LEASE_SECONDS}s",
    "TIDEMILL_SWEEP_INTERVAL": "300ms",
    "TIDEMILL_POLL_INTERVAL": "300ms",
    "TIDEMILL_GRACE": "500ms",
    "TIDEMILL_MODULES": warehouse.MODULES,
}

SCHEMA = """
CREATE TABLE public.produced (value text PRIMARY KEY);
CREATE TABLE public.stolen (job_id bigint, before uuid, after uuid);
CREATE FUNCTION public.note_theft() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.stolen VALUES (old.id, old.pass_key, new.pass_key);
    RETURN new;
END $$;
CREATE TRIGGER note_theft AFTER UPDATE ON tidemill.job FOR EACH ROW
    WHEN (old.pass_key IS NOT NULL AND new.pass_key IS NOT NULL AND old.pass_key <> new.pass_key)
    EXECUTE FUNCTION public.note_theft();
"""


class RolledBack(Exception):
    """On purpose."""


@dataclass
class Storm:
    seed: int
    seconds: float
    servers: OwnServers
    processes: Processes
    env: dict[str, str]
    told: Counter[str] = field(default_factory=Counter)
    rolled_back: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.over = threading.Event()
        self.end = 0.0
        self.tide = Tide(self.seed, self.told)

    def rage(self) -> None:
        with db.engine().begin() as connection:
            connection.exec_driver_sql(SCHEMA)
            connection.exec_driver_sql(TIDE_SCHEMA)
        self.workers = [self.processes.celery_worker(self.env | QUICK, ready=False) for _ in range(WORKERS)]
        self.scheduler = self.processes.scheduler(self.env | QUICK)
        for worker in self.workers:
            worker.wait_for("ready")
        self.end = time.monotonic() + self.seconds
        producers = [
            threading.Thread(target=self._produce, args=(random.Random(f"{self.seed}/{number}"),))
            for number in range(PRODUCERS)
        ]
        for producer in producers:
            producer.start()
        self.tide.rise()
        try:
            self._break_things()
        finally:
            self.over.set()
            for producer in producers:
                producer.join(60)
            self.tide.ebb()

    def _produce(self, dice: random.Random) -> None:
        while not self.over.is_set():
            value = uuid.UUID(int=dice.getrandbits(128)).hex
            task = dice.choice([tasks.record, tasks.record, tasks.in_transaction])
            try:
                with transaction() as session:
                    session.execute(sa.text("INSERT INTO public.produced VALUES (:value)"), {"value": value})
                    key = f"key:{dice.randrange(50)}" if dice.random() < 0.05 else None
                    if key is None:
                        enqueue(task.s(value), session=session, max_attempts=1000, priority=dice.randrange(3))
                    else:
                        enqueue(tasks.noop.s(), session=session, key=key, max_attempts=1000)
                        session.execute(sa.text("DELETE FROM public.produced WHERE value = :v"), {"v": value})
                    if dice.random() < 0.2:
                        raise RolledBack
                self.told["committed"] += 1
            except RolledBack:
                self.rolled_back.add(value)
            except (DatabaseError, SQLAlchemyError):
                self.told["database away"] += 1
                pause(0.05)
            pause(dice.random() * 0.06)

    def _break_things(self) -> None:
        havoc = Havoc(self.random, self.servers, self.workers, self.scheduler, self.told)
        # Workers more often than the rest.
        ways = [*havoc.ways, havoc.kill_a_worker, havoc.kill_a_child, self._cancel_a_run]
        while time.monotonic() < self.end:
            havoc.rest()
            havoc.do(self.random.choice(ways))

    def _cancel_a_run(self) -> None:
        self.tide.cancel_one(self.random)

    def calm(self, timeout: float = 90.0) -> None:
        """All that was committed comes to its end by itself."""

        def at_rest() -> bool:
            with Session(db.engine()) as session:
                return session.execute(sa.select(Job.id).where(Job.state != JobState.PARKED).limit(1)).first() is None

        wait_until(at_rest, timeout, "every job has ended")
        self.tide.release()
        wait_until(self.tide.at_rest, timeout, "every reactive task has seen all there is")

    def judge(self) -> None:
        self.tide.judge()
        with Session(db.engine()) as session:
            left = session.execute(sa.select(Job.id, Job.state, Job.attempts, Job.error)).all()
            assert left == [], "jobs that were given up"
            produced = set(session.execute(sa.text("SELECT value FROM public.produced")).scalars())
            done = sa.text(
                "SELECT value, task, count(*) AS times FROM public.execution WHERE ended_at IS NOT NULL OR task = :once"
            )
            ran = session.execute(sa.text(done.text + " GROUP BY value, task"), {"once": "in_transaction"}).all()
            of_jobs = sa.text("SELECT DISTINCT value FROM public.execution WHERE task IN ('record', 'in_transaction')")
            begun = set(session.execute(of_jobs).scalars())
            assert produced, "the storm has produced nothing"
            assert produced - {row.value for row in ran} == set(), "committed jobs that never ended"
            assert begun - produced == set(), "jobs of transactions that were rolled back have run"
            assert begun & self.rolled_back == set()
            twice = [row.value for row in ran if row.task == "in_transaction" and row.times > 1]
            assert twice == [], "saved twice, or late, under this_job().transaction()"
            assert session.execute(sa.text("SELECT * FROM public.stolen")).all() == [], "two valid claims on a job"
            assert invariants.check(session) == []
            logged = sa.select(sa.func.count(sa.distinct(JobLog.job_id))).where(JobLog.outcome == Outcome.DONE)
            kept = sa.select(sa.func.count(sa.distinct(JobLog.job_id))).where(JobLog.key.is_(None))
            assert session.execute(logged.where(JobLog.key.is_(None))).scalar_one() == len(produced), (
                "not all in the log"
            )
            assert session.execute(kept).scalar_one() == len(produced)
            outcomes = session.execute(sa.select(JobLog.outcome, sa.func.count()).group_by(JobLog.outcome)).all()
            self.told.update({f"log: {outcome}": number for outcome, number in outcomes})
            self.told["produced"] = len(produced)
