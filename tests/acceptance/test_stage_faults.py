"""Crash at every fault point of write → ring → claim → load → process → save, and of the sweep: recovered each time,
every entity visited by every stage that it needs, and no step of it saved twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import faults, limits, registration
from app.celery import app as celery_app
from recovery import invariants
from tests.kit import stages_world as w
from tests.kit.faults import EXIT_STATUS, die_at
from tests.kit.process import Processes
from tests.kit.stages_world import Parcel
from tests.kit.waiting import wait_until
from tidemill import transaction

SECONDS = 300
COUNT = 5
DONE = "weight = size * 2 AND price = weight + 1 AND reminded"
#: Who dies at which point: the program that writes, a child of the worker, the scheduler.
WRITER = ("enqueue.before_commit", "enqueue.committed", "ring.before_publish", "ring.published")
TICKET = ("ticket.received",)
BATCH = (
    *("claim.before_commit", "claim.committed", "visits.loaded", "visits.processed"),
    *("finish.before_commit", "finish.committed"),
)
#: Reached by stages alone: the system stage asks, and calls nothing.
STAGE = ("run.before_body",)
BACK = ("give_back.before_commit", "give_back.committed")
SWEEP = ("sweep.before_commit", "sweep.committed")
#: Visits never reach them.
OTHERS = tuple(
    point
    for point in faults.POINTS
    if point.startswith(("start.", "service.", "periodic.", "outbox.", "process.", "task.", "operation.", "heal."))
    or point in ("run.checked", "run.after_body")
)

_WRITE = f"""
from app.doorbell import flush
from tests.kit.stages_world import Parcel
from tidemill import transaction
with transaction() as session:
    session.add_all([Parcel(id=str(number), size=number) for number in range({COUNT})])
    session.flush()
flush(60)
"""


@pytest.fixture
def env(env: dict[str, str], engine: Engine) -> dict[str, str]:
    w.create(engine)
    return env | {
        "TIDEMILL_MODULES": w.MODULES,
        "TIDEMILL_SWEEP_INTERVAL": "200ms",
        "TIDEMILL_LEASE": "1s",
        "TIDEMILL_GRACE": "0s",
    }


def test_every_point_is_somebodys() -> None:
    assert set(WRITER + TICKET + BATCH + STAGE + BACK + SWEEP + OTHERS) == set(faults.POINTS)


def _write(count: int = COUNT) -> None:
    with transaction() as tx:
        tx.add_all([Parcel(id=str(number), size=number) for number in range(count)])


def _all_is_well(session: Session, count: int = COUNT) -> None:
    wait_until(lambda: w.counted(session, DONE) == count, SECONDS, "all parcels are done")
    wait_until(lambda: not w.entries(session), SECONDS, "no queue holds anything")
    assert w.counted(session, "true") == count
    # Written once, and changed once by each of the three stages; the first has counted in its state.
    assert session.execute(sa.text("SELECT min(version), max(version) FROM parcel")).one() == (4, 4)
    # S14: each save is an event, and each of the last stage's has been told of once.
    of_each = (
        "SELECT array_agg(stage ORDER BY stage) stages, array_agg(version ORDER BY id) versions "
        "FROM tidemill.event GROUP BY entity_id"
    )
    for stages, versions in session.execute(sa.text(of_each)):
        assert stages == ["price", "remind", "remind", "weigh"]
        assert versions == sorted(versions)
    wait_until(lambda: w.told(session) == 2 * count, SECONDS, "all saves are told of")
    told = "SELECT count(DISTINCT entity_id), count(*) FILTER (WHERE reminded AND state IS NULL) FROM told"
    assert session.execute(sa.text(told)).one() == (count, count)
    states = session.execute(sa.text("SELECT stage, encode(value, 'hex') FROM tidemill.stage_state")).all()
    assert states == [("weigh", "0801")] * count
    for stage in ("weigh", "price", "remind"):
        assert len(set(w.visited(session, stage))) == count
    assert invariants.check(session) == []
    assert session.execute(sa.text("SELECT count(*) FROM tidemill.entity_guard")).scalar_one() == 0


@pytest.mark.parametrize("point", WRITER)
def test_the_writer_dies(
    point: str, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    """S7: its transaction is there as a whole, with the visits, or not at all."""
    writer = processes.python(_WRITE, env | die_at(point, tmp_path / "died"), "writer")
    assert writer.wait(SECONDS) == EXIT_STATUS
    there = 0 if point == "enqueue.before_commit" else COUNT
    assert len(w.entries(session, "system")) == w.counted(session, "true") == there
    processes.celery_worker(env)
    if not there:
        _write()
    _all_is_well(session)


def _under_limits(point: str) -> None:
    """A claim of one statement has no moment before its commit; one under limits has."""
    if point == "claim.before_commit":
        registration.write(celery_app)
        with transaction() as tx:
            for stage in ("system", "weigh", "price", "remind"):
                limits.configure(tx, f"stage.parcel.{stage}", max_parallel=5)


@pytest.mark.parametrize(
    ("point", "time"),
    [
        *((point, time) for point in BATCH for time in (1, 2, 3)),
        *((point, 1) for point in TICKET),
        *((point, time) for point in STAGE for time in (1, COUNT + 1)),
    ],
)
def test_a_worker_dies(
    point: str, time: int, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    """S17: the first batch is the system stage's, the next ones are those of stages. With one child, in turn."""
    died = tmp_path / "died"
    _under_limits(point)
    worker = processes.celery_worker(env | die_at(point, died, time), concurrency=1)
    processes.scheduler(env)
    _write()
    wait_until(died.exists, SECONDS, f"died at {point}: {worker.log}")
    _all_is_well(session)


@pytest.mark.parametrize("point", BACK)
def test_a_worker_dies_while_it_hands_back(
    point: str, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    """What was claimed with a slow visit and has not begun goes back after a second."""
    died = tmp_path / "died"
    processes.celery_worker(env | {"TIDEMILL_LEASE": "1min"} | die_at(point, died), concurrency=1)
    processes.scheduler(env)
    w.doors(session, range(100, 110))
    wait_until(lambda: w.counted(session, "made = wanted", "door") == 10, SECONDS)
    w.doors(session, [1], "silent")
    w.doors(session, range(2, 20))
    session.execute(sa.text("UPDATE door SET way = 'silent', wanted = 2 WHERE id BETWEEN 100 AND 110"))
    session.commit()
    wait_until(died.exists, SECONDS, f"died at {point}")
    wait_until(lambda: w.counted(session, "made = wanted", "door") == 29, SECONDS)
    wait_until(lambda: not w.entries(session), SECONDS)
    assert w.counted(session, "version <> 1 + wanted + (wanted = 2 AND id >= 100)::int", "door") == 0
    assert invariants.check(session) == []


@pytest.mark.parametrize("point", SWEEP)
def test_the_scheduler_dies_while_it_sweeps(
    point: str, env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    died = tmp_path / "worker"
    worker = processes.celery_worker(env | die_at("run.before_body", died), concurrency=1)
    _write()
    wait_until(died.exists, SECONDS, worker.log)
    dying = processes.scheduler(env | die_at(point, tmp_path / "scheduler"))
    assert dying.wait(SECONDS) == EXIT_STATUS, dying.log
    processes.scheduler(env)
    _all_is_well(session)
