"""Thousands of processes, where answers get lost, actors raise and workers die: all finish with the right value, and no
task is accepted twice."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import db
from recovery import invariants
from tests.chaos import caravan
from tests.kit.process import Process, Processes
from tests.kit.waiting import pause
from tidemill import start, transaction

QUICK = {
    "TIDEMILL_LEASE": "2s",
    "TIDEMILL_SWEEP_INTERVAL": "300ms",
    "TIDEMILL_MODULES": "tests.chaos.caravan",
    "CARAVAN_LOST": "1",
    "CARAVAN_RAISED": "1",
}
#: What has to be done still: all is done when no process is left.
_LEFT = sa.text(
    "SELECT (SELECT count(*) FROM tidemill.process WHERE state <> 'FINISHED'), "
    "(SELECT count(*) FROM tidemill.task WHERE state <> 'FINISHED'), (SELECT count(*) FROM public.accepted)"
)
STILL_SECONDS = 120
_TROUBLE = sa.text(
    "SELECT count(*) FILTER (WHERE refused IS NULL), (SELECT sum(work_timeouts) FROM tidemill.actor_preferences) "
    "FROM tidemill.answer"
)


@dataclass(frozen=True)
class Journey:
    """What a caravan met on its way."""

    seconds: float
    raised: int
    lost: int
    killed: int


def _one(query: sa.TextClause, **values: int) -> tuple[int, ...]:
    with db.engine().connect() as connection:
        return tuple(int(each or 0) for each in connection.execute(query, values).one())


def _travel(seed: int, count: int, kills: float, env: dict[str, str], processes: Processes) -> Journey:
    with db.engine().begin() as connection:
        connection.exec_driver_sql(caravan.SCHEMA)
    env = env | QUICK
    workers = [processes.celery_worker(env, ready=False) for _ in range(2)]
    processes.scheduler(env)
    for worker in workers:
        worker.wait_for("ready")
    with transaction() as session:
        for number in range(count):
            start(caravan.travel, number, custom_id=str(number), session=session)
    begun, killed = time.monotonic(), 0
    dice = random.Random(seed)
    last = moved = begun
    left: tuple[int, ...] = ()
    while (now := _one(_LEFT))[0]:
        if now != left:
            left, moved = now, time.monotonic()
        assert time.monotonic() - moved < STILL_SECONDS, f"the caravan has come to a stop: {left}"
        # On a machine so slow that none is up before the next is killed, nobody would come on.
        if time.monotonic() - last > kills and moved > last:
            killed += _kill(dice, workers)
            last = time.monotonic()
        pause(0.2)
    took = time.monotonic() - begun
    raised, lost = _one(_TROUBLE)
    return Journey(took, raised, lost, killed)


def _kill(dice: random.Random, workers: list[Process]) -> int:
    worker = dice.choice(workers)
    if dice.random() < 0.3:
        worker.kill()
        worker.start()
        return 1
    if children := worker.children():
        Process.kill_one(dice.choice(children))
        return 1
    return 0


def _judge(count: int) -> None:
    with Session(db.engine()) as session:
        caravan.judge(session, range(count))
        assert invariants.check(session) == []


def test_five_hundred_processes_on_a_bad_day(env: dict[str, str], processes: Processes) -> None:  # P3 P4 P5 R2
    journey = _travel(20260801, 500, 2.0, env, processes)
    _judge(500)
    assert journey.lost, "answers were lost"
    assert journey.raised, "actors have raised"


@pytest.mark.chaos
def test_fifty_thousand_processes(env: dict[str, str], processes: Processes) -> None:
    """`make chaos SEED=7`"""
    seed = int(os.environ.get("SEED") or int.from_bytes(os.urandom(4)))
    print(f"seed {seed}", flush=True)
    count = int(os.environ.get("PROCESSES") or 50_000)
    journey = _travel(seed, count, 10.0, env, processes)
    _judge(count)
    steps = count * caravan.TASKS / journey.seconds
    print(f"{count} processes in {journey.seconds:.0f} s, {steps:.0f} steps/s: {journey}", flush=True)
