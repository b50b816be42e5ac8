"""The compose file: its services run, do their work, and their health checks see when they do not.

What no engine is needed for: the very commands, environments and health checks, as processes. That images are built and
containers start is not proven here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import redis
import sqlalchemy as sa

from app.embedded import OwnServers
from tests.kit.database import Databases
from tests.kit.deployed import ROLE, Deployed
from tests.kit.process import Process, Processes
from tests.kit.waiting import wait_until

#: Nine programs start at once, on a machine that does other things too.
LONG = 300.0
#: What they say when they are there; to ask the health check before that costs a program's start each time.
THERE = {
    "worker": r"general@\S+ ready\.",
    "scheduler": "leader of|no longer|shards of this scheduler",
    "console": "listening on",
    "rpc": "listening on",
    "flower": "Visit me at",
}


@pytest.fixture
def deployed(tmp_path: Path, processes: Processes, servers: OwnServers, databases: Databases) -> Iterator[Deployed]:
    owner = databases.empty()
    yield Deployed(tmp_path, processes, servers.admin_url, owner)
    processes.end()
    servers.postgres.resume()
    databases.drop(owner)
    with databases.admin.connect() as connection:
        connection.exec_driver_sql(f"DROP ROLE IF EXISTS {ROLE}")


@pytest.mark.timeout(1800)
def test_every_service_works_and_its_health_check_sees_when_it_does_not(
    deployed: Deployed, servers: OwnServers
) -> None:
    deployed.make_role()
    running = _start_all(deployed)
    assert running.keys() | {"migrate", "postgres", "prometheus", "grafana"} == deployed.services.keys()
    assert [said for code, said in _probed(deployed, ["postgres", "broker"]) if code] == []
    _work_is_done(deployed)
    code, said = deployed.run("worker", "tidemill", "doctor")
    assert code == 0, said
    _freeze(deployed, running)
    frozen = [name for name in running if name != "broker"]
    assert [said for code, said in _probed(deployed, frozen) if not code] == []
    _stop(running, frozen)
    _fill(deployed)
    assert deployed.probe("broker")[0] != 0
    servers.postgres.pause()
    assert deployed.probe("postgres")[0] != 0


def _start_all(deployed: Deployed) -> Mapping[str, Sequence[Process]]:
    broker = deployed.start_broker()
    broker.wait_for("Ready to accept connections", LONG)
    migrate = deployed.start("migrate")
    assert migrate.wait(LONG) == 0, migrate.log
    assert f"role {ROLE}: may run workers and services" in migrate.log
    others = [name for name, each in deployed.services.items() if each.ours and name != "migrate"]
    running = {name: [deployed.start(name) for _ in range(deployed.services[name].replicas)] for name in others}
    for name, started in running.items():
        for each in started:
            each.wait_for(THERE.get(name, ""), LONG)
    wait_until((deployed.directory / "beat").exists, LONG, "beat has sent a message")
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(wait_until, partial(_healthy, deployed, each), LONG) for each in running.values()]
        assert all(each.result() for each in asked)
    return {**running, "broker": [broker]}


def _healthy(deployed: Deployed, started: Sequence[Process]) -> bool:
    for each in started:
        assert each.status is None, each.log
    return deployed.probe(started[0].name)[0] == 0


def _probed(deployed: Deployed, names: Sequence[str]) -> Sequence[tuple[int, str]]:
    """Two at a time: some of them wait for an answer that does not come."""
    with ThreadPoolExecutor(2) as pool:
        found = zip(names, pool.map(deployed.probe, names), strict=True)
        return [(code, f"{name}: {said}") for name, (code, said) in found]


def _work_is_done(deployed: Deployed) -> None:
    """By the role with the least rights, which is also that of this look."""
    engine = sa.create_engine(deployed.app_url.replace("postgresql", "postgresql+psycopg2"), poolclass=sa.NullPool)

    def asked(statement: str, **given: object) -> object:
        with engine.begin() as connection:
            return connection.execute(sa.text(statement), given).scalar_one_or_none()

    job = asked("select tidemill.enqueue('tests.kit.tasks.noop', '[]')")
    done = "select 1 from tidemill.job_log where job_id = :job and outcome = 'done'"
    wait_until(lambda: asked(done, job=job), LONG, "the job is done")
    for more in ("create schema mine", "create table public.mine ()", "drop table tidemill.job"):
        with pytest.raises(sa.exc.ProgrammingError, match=r"permission denied|must be owner"):
            asked(more)


def _freeze(deployed: Deployed, running: Mapping[str, Sequence[Process]]) -> None:
    """Every process is there and does nothing; and a minute has passed since it did."""
    for name, started in running.items():
        for each in started if name != "broker" else ():
            each.stop()
    before = time.time() - 60
    os.utime(deployed.directory / "beat", (before, before))
    with deployed.owner.begin() as connection:
        connection.execute(sa.text("update tidemill.scheduler set beat_at = beat_at - interval '1 minute'"))


def _stop(running: Mapping[str, Sequence[Process]], names: Sequence[str]) -> None:
    """As Compose does, and they end by themselves."""
    started = [each for name in names for each in running[name]]
    for each in started:
        each.cont()
        each.terminate()
    assert {each.name: each.wait(LONG) for each in started} == dict.fromkeys(names, 0)


def _fill(deployed: Deployed) -> None:
    with redis.Redis.from_url(deployed.broker_url) as broker:
        broker.config_set("maxmemory", 1)
