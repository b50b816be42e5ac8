"""Crash at every fault point of register → begin → ring → claim → call → accept, and of the sweep: every process comes
to its right value, no step of it is accepted twice, and no part of a step is ever there."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

import processes as tidemill_processes
from app import faults
from processes import preferences
from tests.kit import process_rows as r
from tests.kit import process_world as w
from tests.kit.faults import EXIT_STATUS, die_at
from tests.kit.process import Processes
from tests.kit.waiting import wait_until
from tidemill import transaction

SECONDS = 300
COUNT = 3
#: Who dies at which point: the program that registers, a child of the worker, the scheduler.
PRODUCER = ("enqueue.before_commit", "enqueue.committed", "ring.before_publish", "ring.published")
BEGIN = ("process.before_begin", "process.begun")
TICKET = ("ticket.received",)
TASK = (
    *("claim.before_commit", "claim.committed", "task.before_body", "task.after_body"),
    *("finish.before_commit", "finish.committed"),
)
BACK = ("give_back.before_commit", "give_back.committed")
SWEEP = ("sweep.before_commit", "sweep.committed")
#: Processes never reach them.
OTHERS = tuple(
    point
    for point in faults.POINTS
    if point.startswith(("start.", "service.", "run.", "visits.", "periodic.", "outbox.", "operation.", "heal."))
)

_REGISTER = f"""
from app.doorbell import flush
from tests.kit import process_world as w
from tidemill import start, transaction
with transaction() as session:
    for number in range({COUNT}):
        start(w.journey, number, session=session)
flush(60)
"""


@pytest.fixture
def env(env: dict[str, str], engine: Engine) -> dict[str, str]:
    w.create(engine)
    preferences.synchronize()
    # What a dead worker had in work is handed out again soon; the recovery of its parent is not all there is.
    for name in ("journey", "midway", "stride", "meet", "toil"):
        preferences.configure(name, {"work_timeout": "6s" if name == "toil" else "2s"})
    return env | {
        "TIDEMILL_MODULES": w.MODULES,
        "TIDEMILL_SWEEP_INTERVAL": "200ms",
        "TIDEMILL_LEASE": "1s",
        "TIDEMILL_GRACE": "0s",
    }


def test_every_point_is_somebodys() -> None:
    assert set(PRODUCER + BEGIN + TICKET + TASK + BACK + SWEEP + OTHERS) == set(faults.POINTS)


def _start(count: int = COUNT) -> None:
    with transaction() as tx:
        for number in range(count):
            tidemill_processes.start(w.journey, number, session=tx)


def _registered(session: Session) -> int:
    return len(r.rows(session, "SELECT id FROM tidemill.process"))


def _all_is_well(session: Session, log: str = "", count: int = COUNT) -> None:
    def done() -> bool:
        # P4: at any moment.
        assert r.check(session) == {}, log
        return r.unfinished(session) == 0

    wait_until(done, SECONDS, "all processes have finished")
    values = [row.value for row in r.rows(session, "SELECT value FROM tidemill.process ORDER BY id")]
    assert values == [w.value_of(number) for number in range(count)]
    counts = r.rows(session, "SELECT tasks, unfinished, broken FROM tidemill.graph")
    assert [tuple(row) for row in counts] == [(w.JOURNEY_TASKS, 0, 0)] * count
    # A task may have been called more often than it was accepted: each time under the same key.
    per_task = "SELECT count(DISTINCT key) AS keys, count(*) AS calls FROM called GROUP BY process_id, task"
    found = r.rows(session, per_task)
    assert len(found) == count * w.JOURNEY_TASKS
    assert {row.keys for row in found} == {1}
    assert sum(row.calls for row in found) <= count * w.JOURNEY_TASKS + 10, "what one crash may cost"


@pytest.mark.parametrize("point", PRODUCER)
def test_the_program_that_registers_dies(
    point: str, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    """P2: its transaction is there as a whole, or not at all; what is there is begun."""
    program = processes.python(_REGISTER, env | die_at(point, tmp_path / "died"), "registers")
    assert program.wait(SECONDS) == EXIT_STATUS
    there = 0 if point == "enqueue.before_commit" else COUNT
    assert _registered(session) == there
    worker = processes.celery_worker(env)
    processes.scheduler(env)
    if not there:
        _start()
    _all_is_well(session, worker.log)


@pytest.mark.parametrize(
    ("point", "time"),
    [
        *((point, time) for point in TASK for time in (1, 3)),
        *((point, 1) for point in BEGIN + TICKET),
    ],
)
def test_a_worker_dies(
    point: str, time: int, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    # P4: with one child, in turn: the first tasks, and those in between.
    if point == "claim.before_commit":
        # A claim of one statement has no moment before its commit; one under limits has.
        for name in ("journey", "midway", "stride", "meet"):
            preferences.configure(name, {"max_parallel": 5})
    died = tmp_path / "died"
    worker = processes.celery_worker(env | die_at(point, died, time), concurrency=1)
    _start()
    wait_until(died.exists, SECONDS, f"died at {point}: {worker.log}")
    processes.scheduler(env)
    _all_is_well(session, worker.log)


@pytest.mark.parametrize("point", BACK)
def test_a_worker_dies_while_it_hands_back(
    point: str, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    """What was claimed with a slow task and has not begun goes back after a second."""
    died = tmp_path / "died"
    worker = processes.celery_worker(env | die_at(point, died), concurrency=1)
    processes.scheduler(env)
    # Quick ones make the next batch large; a slow one in it makes the rest wait.
    quick = tidemill_processes.start(w.crowd, ["x"] * 30)
    wait_until(lambda: r.state(session, quick) == "FINISHED", SECONDS)
    slow = tidemill_processes.start(w.crowd, ["silent", *["x"] * 9])
    wait_until(died.exists, SECONDS, f"died at {point}: {worker.log}")
    wait_until(lambda: r.state(session, slow) == "FINISHED", SECONDS)
    assert r.check(session) == {}
    assert len(w.called(session, "toil")) <= 30 + 2 * 10


@pytest.mark.parametrize("point", SWEEP)
def test_the_scheduler_dies_while_it_sweeps(
    point: str, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    # R7
    died = tmp_path / "worker"
    worker = processes.celery_worker(env | die_at("task.before_body", died), concurrency=1)
    _start()
    wait_until(died.exists, SECONDS, worker.log)
    dying = processes.scheduler(env | die_at(point, tmp_path / "scheduler"), ready=False)
    assert dying.wait(SECONDS) == EXIT_STATUS, dying.log
    assert r.check(session) == {}
    processes.scheduler(env)
    _all_is_well(session, worker.log)


@pytest.mark.parametrize("point", BEGIN)
def test_the_scheduler_dies_while_it_begins(
    point: str, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    # P2, R5
    _start()
    dying = processes.scheduler(env | die_at(point, tmp_path / "died"), ready=False)
    assert dying.wait(SECONDS) == EXIT_STATUS, dying.log
    assert r.check(session) == {}
    states = {row.state for row in r.rows(session, "SELECT state FROM tidemill.process")}
    assert states == {"ACTIVE" if point == "process.begun" else "REGISTERED"}
    processes.scheduler(env)
    worker = processes.celery_worker(env)
    _all_is_well(session, worker.log)
