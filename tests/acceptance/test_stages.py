"""Stages through real workers, with beat or the scheduler: from a write of an entity to the end of its chain."""

from __future__ import annotations

import re
from itertools import combinations

import psycopg2
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.orm import Session

from app import db, limits
from recovery import invariants
from tests.conftest import child_environment
from tests.kit import stages_world as w
from tests.kit.process import Process, Processes
from tests.kit.stages_world import Guest, Parcel
from tests.kit.waiting import never_within, wait_until
from tidemill import transaction

SECONDS = 300
LATE_SECONDS = 2
DONE = "weight = size * 2 AND price = weight + 1 AND reminded"


def quick(env: dict[str, str]) -> dict[str, str]:
    return env | {"TIDEMILL_MODULES": w.MODULES, "TIDEMILL_SWEEP_INTERVAL": "200ms"}


@pytest.fixture
def env(env: dict[str, str], engine: Engine) -> dict[str, str]:
    w.create(engine)
    return quick(env)


def _services(which: str, env: dict[str, str], processes: Processes) -> None:
    if which == "beat":
        processes.beat(env)
    else:
        processes.scheduler(env)


def _all_done(session: Session, count: int) -> None:
    wait_until(lambda: w.counted(session, DONE) == count, SECONDS, f"{count} parcels are done")
    wait_until(lambda: not w.entries(session), SECONDS, "no queue holds anything")
    assert invariants.check(session) == []


def _plain(database_url: str, *statements: str) -> None:
    """As psql would: a plain connection, nothing of ours."""
    url = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    connection = psycopg2.connect(url)
    try:
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    finally:
        connection.close()


@pytest.mark.parametrize("services", ["beat", "scheduler"])
def test_whoever_writes_an_entity(
    services: str, env: dict[str, str], processes: Processes, session: Session, database_url: str
) -> None:
    """S7, S8, S11: through the ORM, in bulk, by plain SQL; the chain goes to its end, and ends."""
    processes.celery_worker(env)
    _services(services, env, processes)
    with transaction() as tx:
        tx.add_all([Parcel(id="orm/1", size=1), Parcel(id="orm/2", size=2)])
    with transaction() as tx:
        tx.execute(sa.insert(Parcel), [{"id": f"bulk/{number}", "size": number} for number in range(20)])
    _plain(database_url, "INSERT INTO parcel (id, size) SELECT 'sql/' || n, n FROM generate_series(1, 20) n")
    _all_done(session, 42)
    assert sorted(w.visited(session, "weigh")) == sorted(w.visited(session, "price")), "each once"
    assert len(w.visited(session, "remind")) == 2 * 42, "once when it was priced, once by its timer"
    assert set(session.execute(sa.select(Parcel.version)).scalars()) == {4}
    with transaction() as tx:
        found = tx.get(Parcel, "orm/1")
        assert found is not None
        found.size = 100
    with transaction() as tx:
        tx.execute(sa.update(Parcel).where(Parcel.id.like("bulk/%")).values(size=Parcel.size + 50))
    _plain(database_url, "UPDATE parcel SET size = size + 30 WHERE id LIKE 'sql/%'")
    _all_done(session, 42)
    visits = {stage: len(w.visited(session, stage)) for stage in ("weigh", "price", "remind")}
    assert visits == {"weigh": 42 + 41, "price": 42 + 41, "remind": 2 * 42}, "who needs nothing is not visited"
    kept = sa.text("SELECT count(*) FROM tidemill.stage_state WHERE stage = 'weigh' AND version > 0")
    assert session.execute(kept).scalar_one() == 42
    assert never_within(lambda: len(w.visited(session, "weigh")) > visits["weigh"], 1)


def test_a_transaction_that_rolls_back_starts_nothing(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    processes.celery_worker(env)
    processes.scheduler(env)
    session.add(Parcel(id="never", size=1))
    session.flush()
    session.rollback()
    session.add(Parcel(id="there", size=1))
    session.commit()
    _all_done(session, 1)
    assert set(w.visited(session, "weigh")) == {"there"}


def test_an_entity_that_is_deleted_is_nobodys(env: dict[str, str], processes: Processes, session: Session) -> None:
    """While it waits for its timer, and while it is visited."""
    processes.celery_worker(env)
    processes.scheduler(env)
    w.doors(session, [1], "gate")
    wait_until(lambda: w.visited(session, "hold"), SECONDS)
    session.execute(sa.text("DELETE FROM door"))
    session.commit()
    w.open_gate(session)
    wait_until(lambda: w.visited(session, "hold", ended=True), SECONDS)
    session.add(Parcel(id="x", size=1))
    session.commit()
    wait_until(lambda: w.visited(session, "remind"), SECONDS)
    session.execute(sa.delete(Parcel))
    session.commit()
    wait_until(lambda: not w.entries(session), SECONDS)
    assert session.execute(sa.text("SELECT count(*) FROM tidemill.stage_state")).scalar_one() == 0
    assert invariants.check(session) == []


def test_celery_knows_a_stage_under_its_own_name(env: dict[str, str], processes: Processes, session: Session) -> None:
    worker = processes.celery_worker(env, name="known")
    node = re.findall(r"(known@\S+) ready", worker.log)[0]
    inspect = ("--timeout=60", f"--destination={node}")
    asked = processes.celery(env, "inspect", "registered", *inspect, name="inspect")
    queues = processes.celery(env, "inspect", "active_queues", *inspect, name="queues")
    assert asked.wait() == queues.wait() == 0
    assert "tests.kit.stages_world.weigh" in asked.log
    taken = set(re.findall(r"'name': '(stage\.\w+\.\w+(?:\.low)?)', 'exchange'", queues.log))
    assert {f"stage.parcel.{each}" for each in ("system", "weigh", "price", "remind", "weigh.low")} <= taken


def test_a_worker_with_queues_takes_only_those(env: dict[str, str], processes: Processes, session: Session) -> None:
    processes.celery_worker(env, queues=["stage.parcel.system", "stage.parcel.weigh"])
    processes.scheduler(env)
    session.add_all([Parcel(id=str(number), size=number) for number in range(5)])
    session.commit()
    wait_until(lambda: w.counted(session, "weight IS NOT NULL") == 5, SECONDS)
    wait_until(lambda: len(w.entries(session, "price")) == 5, SECONDS)
    assert never_within(lambda: w.visited(session, "price"), 0.5)
    processes.celery_worker(env, queues=["stage.parcel.price"])
    wait_until(lambda: w.counted(session, "price IS NOT NULL") == 5, SECONDS)
    assert never_within(lambda: w.visited(session, "remind"), 0.5)
    processes.celery_worker(env, queues=["stage.parcel.remind"])
    _all_done(session, 5)


def _guests(count: int, first: int = 0) -> None:
    with transaction() as tx:
        tx.execute(sa.insert(Guest), [{"id": first + number} for number in range(count)])


def _crew(env: dict[str, str], processes: Processes) -> list[Process]:
    workers = [processes.celery_worker(env, concurrency=4, ready=False) for _ in range(2)]
    for worker in workers:
        worker.wait_for("ready", SECONDS)
    processes.scheduler(env)
    return workers


def test_limits_hold_for_the_cluster(env: dict[str, str], processes: Processes, session: Session) -> None:
    """S15: two workers with 8 slots. At most 3 calls of one stage at once, and no span of time has more calls of the
    other than its rate and burst allow."""
    _crew(env, processes)
    _guests(100)
    wait_until(lambda: w.counted(session, "seated AND fed", "guest") == 100, SECONDS)
    assert max(span.inside for span in w.spans(session, "seat")) <= 3
    seated, fed = w.spans(session, "seat"), w.spans(session, "feed")
    assert len({span.pid for span in seated}) > 1
    begun = [span.begun_at for span in fed]
    # A call notes its own start, late by what a worker of a loaded machine needs for it. Both stages save the same
    # entities: a call whose save met another is made again, and counts.
    pairs = combinations(range(len(begun)), 2)
    spans = ((last - first + 1, (begun[last] - begun[first]).total_seconds()) for first, last in pairs)
    assert all(calls <= 1 + 20 * (seconds + LATE_SECONDS) for calls, seconds in spans)
    assert invariants.check(session) == []


def test_limits_change_at_run_time(env: dict[str, str], processes: Processes, session: Session) -> None:
    """S15: paused, one at a time, without limit."""
    _crew(env, processes)
    wait_until(lambda: w.registered(session, "guest"), SECONDS)
    with transaction() as tx:
        limits.configure(tx, "stage.guest.seat", paused=True)
        limits.configure(tx, "stage.guest.feed", rate=None)
    _guests(20)
    wait_until(lambda: w.counted(session, "fed", "guest") == 20, SECONDS)
    assert w.visited(session, "seat") == []
    with transaction() as tx:
        limits.configure(tx, "stage.guest.seat", paused=False, max_parallel=1)
    wait_until(lambda: w.counted(session, "seated", "guest") == 20, SECONDS)
    assert {span.inside for span in w.spans(session, "seat")} == {1}
    with transaction() as tx:
        limits.configure(tx, "stage.guest.seat", max_parallel=None)
    _guests(200, first=100)
    wait_until(lambda: w.counted(session, "seated", "guest") == 220, SECONDS)
    assert max(span.inside for span in w.spans(session, "seat")) > 1


def _shards(scheduler: Process) -> str | None:
    """By the last word of its log."""
    said = re.findall(r"shards of this scheduler: (.*)", scheduler.log)
    return said[-1] if said else None


def test_schedulers_share_the_shards(env: dict[str, str], processes: Processes, session: Session) -> None:
    """S13: one dying hands its shards to the other. No worker rings for itself here."""
    first = processes.scheduler(env)
    wait_until(lambda: _shards(first) == "all" or w.entries(session), SECONDS)
    second = processes.scheduler(env)
    wait_until(lambda: {_shards(first), _shards(second)} == {"(0, 7)", "(8, 15)"}, SECONDS)
    processes.celery_worker(env)
    with transaction() as tx:
        tx.execute(sa.insert(Parcel), [{"id": f"both/{number}", "size": number} for number in range(40)])
    _all_done(session, 40)
    second.kill()
    assert _shards(first) != "all"
    with transaction() as tx:
        tx.execute(sa.insert(Parcel), [{"id": f"one/{number}", "size": number} for number in range(40)])
    wait_until(lambda: _shards(first) == "all", SECONDS)
    _all_done(session, 80)
    third = processes.scheduler(env)
    wait_until(lambda: {_shards(first), _shards(third)} == {"(0, 7)", "(8, 15)"}, SECONDS)
    first.terminate()
    assert first.wait() == 0, first.log
    wait_until(lambda: _shards(third) == "all", SECONDS, "who says goodbye leaves its shards at once")


def test_stages_run_on_every_broker(database_url: str, any_broker_url: str, processes: Processes) -> None:
    env = quick(child_environment(database_url, any_broker_url))
    w.create(db.engine())
    processes.celery_worker(env)
    processes.scheduler(env)
    with Session(db.engine()) as session:
        session.add_all([Parcel(id=str(number), size=number) for number in range(5)])
        session.commit()
        _all_done(session, 5)


def test_stages_run_on_every_postgres(any_database_url: str, broker_url: str, processes: Processes) -> None:
    env = quick(child_environment(any_database_url, broker_url))
    w.create(db.engine())
    processes.celery_worker(env)
    processes.beat(env)
    with Session(db.engine()) as session:
        session.add_all([Parcel(id=str(number), size=number) for number in range(5)])
        session.commit()
        _all_done(session, 5)
