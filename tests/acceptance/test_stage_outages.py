"""What breaks around stages: workers killed, stopped or frozen, the broker wiped, Postgres gone."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.embedded import OwnServers
from recovery import invariants
from stages import queue
from tests.kit import stages_world as w
from tests.kit.database import make_durable
from tests.kit.process import Process, Processes
from tests.kit.stages_world import Door, Parcel
from tests.kit.waiting import never_within, wait_until
from tidemill import transaction

SECONDS = 300
#: More than a worker needs to know how quick the stage is, so that it takes several at a time.
WARM = range(1000, 1010)


@pytest.fixture
def env(env: dict[str, str], engine: Engine) -> dict[str, str]:
    w.create(engine)
    return env | {"TIDEMILL_MODULES": w.MODULES, "TIDEMILL_SWEEP_INTERVAL": "200ms", "TIDEMILL_LEASE": "2s"}


def _patient(env: dict[str, str]) -> dict[str, str]:
    """For workers whose claims nobody is to take back, however slow the machine is."""
    return env | {"TIDEMILL_LEASE": "10min"}


def _made(session: Session, count: int) -> None:
    wait_until(lambda: w.counted(session, "made = wanted", "door") == count, SECONDS, f"{count} doors are made")


def _begun(session: Session, entity_id: int, times: int = 1) -> None:
    wait_until(lambda: w.visited(session, "hold").count(str(entity_id)) >= times, SECONDS, f"{entity_id} has begun")


def _warm(session: Session) -> None:
    w.doors(session, WARM)
    _made(session, len(WARM))
    wait_until(lambda: not w.entries(session), SECONDS)


def _batch(session: Session, ways: dict[int, str]) -> None:
    """To be claimed together: the stage is offered in one transaction."""
    session.execute(sa.insert(Door), [{"id": each, "way": way} for each, way in ways.items()])
    # Without the system stage, which would offer them one after the other.
    session.execute(sa.text("DELETE FROM tidemill.stage_visit WHERE stage = 'system'"))
    queue.offer_many(list(ways), w.Hold, session=session)
    session.commit()


def _at_rest(session: Session) -> None:
    wait_until(lambda: not w.entries(session), SECONDS, "no queue holds anything")
    assert invariants.check(session) == []
    assert session.execute(sa.text("SELECT count(*) FROM tidemill.entity_guard")).scalar_one() == 0


def test_a_worker_that_is_stopped_hands_back(env: dict[str, str], processes: Processes, session: Session) -> None:
    """J8 for visits: in the middle of a batch, at no charge; what was made before is kept."""
    env |= {"TIDEMILL_GRACE": "300ms", "TIDEMILL_LEASE": "10min"}
    worker = processes.celery_worker(env, concurrency=1)
    scheduler = processes.scheduler(env)
    _warm(session)
    _batch(session, {1: "", 2: "gate", 3: "", 4: ""})
    _begun(session, 2)
    scheduler.kill()
    worker.terminate()
    assert worker.wait() == 0
    assert "Traceback" not in worker.log
    waiting = [(row.entity_id, row.state, row.attempts, row.alone) for row in w.entries(session, "hold")]
    assert waiting == [(each, "waiting", 0, False) for each in ("2", "3", "4")]
    assert session.execute(sa.text("SELECT count(*) FROM tidemill.entity_guard")).scalar_one() == 0
    w.open_gate(session)
    processes.celery_worker(env, concurrency=1)
    _made(session, len(WARM) + 4)
    assert w.visited(session, "hold").count("1") == 1
    _at_rest(session)


def test_what_ends_within_the_grace_is_kept(env: dict[str, str], processes: Processes, session: Session) -> None:
    worker = processes.celery_worker(_patient(env), concurrency=1)
    processes.scheduler(env)
    w.doors(session, [1], "silent")
    _begun(session, 1)
    worker.terminate()
    assert worker.wait() == 0
    assert w.counted(session, "made = wanted", "door") == 1
    assert w.visited(session, "hold") == ["1"]


def test_a_visit_that_kills_its_worker_is_parked_alone(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    """S17: those that were claimed with it are handed out one by one, and only it is charged."""
    processes.celery_worker(_patient(env), concurrency=1)
    processes.scheduler(env)
    _warm(session)
    _batch(session, dict.fromkeys(range(1, 10), "") | {5: "poison"})
    wait_until(lambda: [row.state for row in w.entries(session, "hold")] == ["parked"], SECONDS)
    (parked,) = w.entries(session)
    assert (parked.entity_id, parked.attempts) == ("5", 3)
    assert parked.error == "its worker died at it, alone, 3 times"
    assert w.counted(session, "made = wanted", "door") == len(WARM) + 8
    calls = w.visited(session, "hold")
    assert calls.count("5") == 3 + 1, "once in the batch, three times alone"
    assert max(calls.count(str(each)) for each in range(1, 10) if each != 5) <= 2
    assert invariants.check(session) == []
    assert never_within(lambda: w.visited(session, "hold").count("5") > 4, 1)
    # What is asked for while it is parked does not wake it.
    with transaction() as tx:
        queue.offer(5, w.Hold, session=tx)
    assert [row.state for row in w.entries(session, "hold")] == ["parked"]


def test_a_visit_that_fails_is_tried_again_and_parked(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    """S17: with its error; the others of its batch are fine."""
    worker = processes.celery_worker(_patient(env), concurrency=1)
    processes.scheduler(env)
    _warm(session)
    _batch(session, {1: "", 2: "bad", 3: ""})
    wait_until(lambda: [row.state for row in w.entries(session)] == ["parked"], SECONDS)
    (parked,) = w.entries(session)
    assert (parked.attempts, parked.error, parked.seen_version) == (3, "RuntimeError: failed on purpose", 1)
    assert "in process" in parked.traceback
    assert [w.visited(session, "hold").count(each) for each in "123"] == [1, 3, 1]
    assert "raised unexpected" not in worker.log
    assert invariants.check(session) == []


def test_what_a_dead_child_held_does_not_wait_for_its_lease(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    """The lease is a minute and more; the parent knows at once. The guard of the entity goes as well."""
    worker = processes.celery_worker(_patient(env), concurrency=1)
    processes.scheduler(env)
    w.doors(session, [1], "gate")
    _begun(session, 1)
    for child in worker.children():
        Process.kill_one(child)
    _begun(session, 1, times=2)
    w.open_gate(session)
    _made(session, 1)
    _at_rest(session)


def test_a_worker_that_is_killed_with_its_children(env: dict[str, str], processes: Processes, session: Session) -> None:
    """R1: nobody is left to say so; the lease ends."""
    worker = processes.celery_worker(env, concurrency=1)
    processes.scheduler(env)
    _warm(session)
    _batch(session, {1: "", 2: "gate", 3: ""})
    _begun(session, 2)
    worker.kill()
    w.open_gate(session)
    processes.celery_worker(_patient(env), concurrency=2)
    _made(session, len(WARM) + 3)
    _at_rest(session)
    assert set(session.execute(sa.select(Door.version).where(Door.id < 10)).scalars()) == {2}


def test_a_late_worker_changes_nothing(
    env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    """S12: frozen past its lease, the entity is another's; when it wakes up it works on nothing and saves nothing."""
    frozen = processes.celery_worker(env, concurrency=1, name="frozen")
    processes.scheduler(env)
    told = tmp_path / "told"
    w.doors(session, [1], f"file:{told}")
    _begun(session, 1)
    frozen.stop()
    told.touch()
    processes.celery_worker(_patient(env), concurrency=1, name="second")
    _begun(session, 1, times=2)
    _made(session, 1)
    _at_rest(session)
    frozen.cont()
    frozen.wait_for("lost the claim|the lease ends", SECONDS)
    assert session.execute(sa.select(Door.version)).scalar_one() == 2
    assert w.visited(session, "hold", ended=True) == ["1"]
    w.doors(session, [2])
    _made(session, 2)


def test_a_broker_that_comes_back_empty(
    env: dict[str, str], processes: Processes, session: Session, servers: OwnServers
) -> None:
    """R12: with thousands of visits waiting, and more that come while it is away."""
    processes.celery_worker(_patient(env))
    processes.scheduler(env)
    with transaction() as tx:
        tx.execute(sa.insert(Parcel), [{"id": f"before/{each}", "size": each} for each in range(2000)])
    wait_until(lambda: w.counted(session, "weight IS NOT NULL") > 100, SECONDS)
    servers.broker.wipe()
    with transaction() as tx:
        tx.execute(sa.insert(Parcel), [{"id": f"away/{each}", "size": each} for each in range(500)])
    servers.broker.start()
    done = "weight = size * 2 AND price = weight + 1 AND reminded"
    wait_until(lambda: w.counted(session, done) == 2500, 240, "all parcels are done")
    _at_rest(session)
    assert len(w.visited(session, "weigh")) == 2500
    assert set(session.execute(sa.select(Parcel.version)).scalars()) == {4}


def test_postgres_restarts_under_visits(
    env: dict[str, str], processes: Processes, session: Session, servers: OwnServers
) -> None:
    """A visit that works through it is saved as if nothing had been; services come back by themselves."""
    make_durable(session)
    env |= {"TIDEMILL_LEASE": "2min"}
    worker, scheduler, beat = processes.celery_worker(env), processes.scheduler(env), processes.beat(env)
    w.doors(session, [1], "silent")
    _begun(session, 1)
    session.close()
    servers.postgres.kill()
    servers.postgres.start()
    wait_until(lambda: w.counted(session, "made = wanted", "door") == 1, SECONDS)
    assert w.visited(session, "hold") == ["1"]
    with transaction() as tx:
        tx.execute(sa.insert(Parcel), [{"id": str(each), "size": each} for each in range(50)])
    wait_until(lambda: w.counted(session, "reminded") == 50, SECONDS)
    assert (worker.status, scheduler.status, beat.status) == (None, None, None)
    assert invariants.check(session) == []


def test_postgres_crashes_under_a_crowd(
    env: dict[str, str], processes: Processes, session: Session, servers: OwnServers
) -> None:
    """Whatever was claimed, loaded or about to be saved: done in the end, and each step once for the entity."""
    make_durable(session)
    processes.celery_worker(env)
    processes.scheduler(env)
    with transaction() as tx:
        tx.execute(sa.insert(Parcel), [{"id": str(each), "size": each} for each in range(1000)])
    wait_until(lambda: w.counted(session, "weight IS NOT NULL") > 100, SECONDS)
    session.close()
    servers.postgres.kill()
    servers.postgres.start()
    wait_until(lambda: w.counted(session, "reminded") == 1000, 240, "all parcels are done")
    _at_rest(session)
    assert set(session.execute(sa.select(Parcel.version)).scalars()) == {4}
