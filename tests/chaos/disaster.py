"""A cluster of one's own for drills: servers, programs, the command line, and what has to hold when all is over."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

import processes
from app import db
from app.embedded import OwnServers, binaries
from app.embedded import servers as embedded_servers
from processes.model import DECISION, queue_of
from recovery import invariants
from tests.chaos import caravan, exercise
from tests.chaos import skew as skewing
from tests.chaos.plan import LEASE_SECONDS
from tests.conftest import child_environment, using
from tests.kit import tasks
from tests.kit.cli import Said, script
from tests.kit.database import Databases
from tests.kit.process import ROOT, Process, Processes
from tests.kit.waiting import wait_until, wait_while_it_moves
from tidemill import start, transaction

#: Kills of the server must not lose what it said was committed; the machine itself does not fail here.
DURABLE = {"fsync": "off", "synchronous_commit": "on"}
QUICK = {
    "TIDEMILL_LEASE": f"{LEASE_SECONDS}s",
    "TIDEMILL_SWEEP_INTERVAL": "300ms",
    "TIDEMILL_POLL_INTERVAL": "300ms",
    "TIDEMILL_GRACE": "500ms",
    "TIDEMILL_MODULES": f"{tasks.__name__},{caravan.__name__},{exercise.__name__}",
}
#: For what has to happen at all, on a loaded machine.
LONG = 180.0


@dataclass
class Cluster:
    servers: OwnServers
    programs: Processes
    env: dict[str, str]

    def worker(self, concurrency: int = 2, *, skew: int = 0, **more: str) -> Process:
        """`skew`: of its clock, in seconds."""
        return self.programs.celery_worker(self.env | more, concurrency, program=skewing.celery(skew))

    def scheduler(self) -> Process:
        return self.programs.scheduler(self.env)

    def say(self, words: str, *more: str) -> Said:
        """`tidemill …`"""
        return script(words, self.env, more=more)

    def say_skewed(self, words: str, seconds: int) -> Said:
        """`tidemill …` on a machine whose clock is off."""
        code = f"from {skewing.__name__} import install; install({seconds}); from app.cli import main; main()"
        command = [sys.executable, "-c", code, *words.split()]
        done = subprocess.run(command, env=self.env, cwd=ROOT, capture_output=True, text=True, check=False)
        return Said(done.returncode, done.stdout, done.stderr)

    def travel(self, first: int, count: int) -> None:
        with transaction() as session:
            for number in range(first, first + count):
                start(caravan.travel, number, custom_id=str(number), session=session)

    def wait_for_steps(self, more: int) -> int:
        """Until so many tasks more have come to their end."""
        before = self.steps()
        wait_until(lambda: self.steps() >= before + more, LONG, f"{more} more steps")
        return self.steps()

    def steps(self) -> int:
        return int(str(self.one("SELECT count(*) FROM public.accepted")))

    def one(self, query: str) -> object:
        with db.engine().connect() as connection:
            return connection.exec_driver_sql(query).scalar_one()

    def states(self) -> dict[str, int]:
        """How many processes are in which state."""
        with db.engine().connect() as connection:
            counted = "SELECT state::text, count(*) FROM tidemill.process GROUP BY state"
            return {row[0]: row[1] for row in connection.exec_driver_sql(counted)}

    def waiting(self, actor: str) -> int:
        """Its tasks that nobody has."""
        query = sa.select(sa.func.count()).where(DECISION.c.queue == queue_of(actor), DECISION.c.state == "QUEUED")
        with db.engine().connect() as connection:
            return int(connection.execute(query).scalar_one())

    def finish(self) -> None:
        """Until all processes have."""
        wait_while_it_moves(lambda: (self.states(), self.steps()), lambda seen: list(seen[0]) == ["FINISHED"], LONG)

    def sound(self) -> None:
        with Session(db.engine()) as session:
            assert invariants.check(session) == []

    def journeys(self, numbers: Iterable[int], also: Mapping[int, object] | None = None) -> None:
        """All of them are over, and right; and the processes of these ids have these values."""
        self.finish()
        with Session(db.engine()) as session:
            caravan.judge(session, numbers)
        for process_id, value in (also or {}).items():
            assert processes.show(process_id).value == value
        self.sound()


@contextmanager
def cluster(programs: Processes, monkeypatch: pytest.MonkeyPatch, home: Path | None = None) -> Iterator[Cluster]:
    with embedded_servers(home, postgres_options=DURABLE) as servers:
        databases = Databases(servers.admin_url, servers.database_url)
        url = databases.clone()
        monkeypatch.setenv("TIDEMILL_BROKER_URL", servers.broker_url)
        with using(monkeypatch, url):
            with db.engine().begin() as connection:
                connection.exec_driver_sql(caravan.SCHEMA)
                connection.exec_driver_sql(exercise.TABLES)
            yield Cluster(servers, programs, child_environment(url, servers.broker_url) | QUICK)
            programs.end()
        databases.admin.dispose()


def back_up(servers: OwnServers, into: Path) -> None:
    program = binaries.postgres(18) / "pg_basebackup"
    url = make_url(servers.admin_url)
    words = ["--host", url.host, "--port", url.port, "--username", url.username, "--pgdata", into]
    command = [str(word) for word in (program, *words, "--checkpoint=fast", "--no-sync")]
    env = {"PGPASSWORD": str(url.password)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def restore(servers: OwnServers, backup: Path) -> None:
    """In place of the data that is there."""
    postgres = servers.postgres
    owner = postgres.data.stat()
    postgres.kill()
    shutil.rmtree(postgres.data)
    shutil.copytree(backup, postgres.data)
    for path in (postgres.data, *postgres.data.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)
    postgres.data.chmod(0o700)
    postgres.start()
