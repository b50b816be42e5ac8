"""What only shows between processes: forks, frozen leaders, and the kit that starts them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.jobs import enqueue, wait
from tests.kit.faults import die_at
from tests.kit.process import Processes
from tests.kit.rows import executions
from tests.kit.tasks import record
from tests.kit.waiting import wait_until

RINGS = """
import os
from app import doorbell
doorbell.ring("first", "t")
assert doorbell.flush(60)
if (child := os.fork()) == 0:
    doorbell.ring("forked", "t")
    os._exit(0 if doorbell.flush(60) else 1)
assert os.waitpid(child, 0)[1] == 0
doorbell.ring("second", "t")
"""
LEADS = """
import app.duties, sys, time
app.duties.FROZEN_SECONDS = 5
while True:
    try:
        led = app.duties.duties.hold("sweep")
    except Exception as error:
        led = type(error).__name__
    print("leads" if led is True else led, flush=True)
    time.sleep(0.1)
"""


def last(log: str) -> str:
    return log.split()[-1] if log.split() else ""


def test_the_doorbell_works_after_a_fork_and_at_the_end_of_a_program(
    env: dict[str, str], broker_url: str, processes: Processes
) -> None:
    # J4: a producer that forks, and one that ends right after its commit.
    assert processes.python(RINGS, env).wait() == 0
    with redis.Redis.from_url(broker_url) as broker:
        found: Any = {name: broker.lrange(name, 0, -1) for name in ("first", "forked", "second")}
    assert {name: len(tickets) for name, tickets in found.items()} == {"first": 1, "forked": 1, "second": 1}
    assert json.loads(found["forked"][0])["headers"]["tidemill"]["queue"] == "forked"


def test_a_frozen_leader_is_replaced_and_wakes_up_as_one_of_the_others(
    env: dict[str, str], processes: Processes, engine: Engine
) -> None:
    first, second = processes.python(LEADS, env, "first"), None
    first.wait_for("leads")
    second = processes.python(LEADS, env, "second")
    second.wait_for("False")
    first.stop()
    second.wait_for("leads", 300)
    first.cont()
    wait_until(lambda: last(first.log) == "False", 60, "the first is no leader any more")
    assert "Unavailable" in first.log
    assert last(second.log) == "leads"
    holders = sa.text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted")
    with engine.connect() as connection:
        assert connection.execute(holders).scalar_one() == 1


def test_a_dead_leader_is_replaced_at_once(env: dict[str, str], processes: Processes) -> None:
    first = processes.python(LEADS, env, "first")
    first.wait_for("leads")
    second = processes.python(LEADS, env, "second")
    second.wait_for("False")
    first.kill()
    second.wait_for("leads", 300)
    assert first.status is not None


def test_a_worker_that_dies_at_a_fault_point_loses_no_job(
    env: dict[str, str], processes: Processes, session: Session, tmp_path: Any
) -> None:
    # J3: and the injector of the kit reaches the children of a worker.
    marker = tmp_path / "died"
    env = env | {"TIDEMILL_LEASE": "1s", "TIDEMILL_SWEEP_INTERVAL": "200ms"} | die_at("run.before_body", marker)
    processes.celery_worker(env, 1)
    processes.scheduler(env)
    ended = wait(enqueue(record.s("once")), 300)
    assert marker.exists()
    assert (ended.outcome.value, executions(session)) == ("done", [("record", "once")])


@pytest.mark.parametrize("concurrency", [1])
def test_the_kit_ends_whole_trees(env: dict[str, str], processes: Processes, concurrency: int) -> None:
    worker = processes.celery_worker(env, concurrency)
    children = worker.children()
    assert len(children) >= concurrency
    worker.kill()
    assert worker.status is not None
    wait_until(lambda: not worker.children())
