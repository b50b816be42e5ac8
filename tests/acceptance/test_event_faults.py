"""The relay as a process: killed at every step, frozen, without a broker, with one that is wiped. A subscriber that
dedups by the sequence sees every save, in order (S14)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import events, faults
from app.embedded import OwnServers
from tests.kit import events as kit
from tests.kit import rows, tasks
from tests.kit.faults import EXIT_STATUS, die_at
from tests.kit.process import Process, Processes
from tests.kit.waiting import wait_until
from tidemill import enqueue

SECONDS = 300
LEADS = "leader of relay"
RELAY = tuple(point for point in faults.POINTS if point.startswith("outbox."))


@pytest.fixture
def env(env: dict[str, str], engine: Engine) -> dict[str, str]:
    kit.create(engine)
    events.subscribe("mail", "#")
    return env


@pytest.fixture
def seen(env: dict[str, str]) -> Iterator[kit.Seen]:
    with kit.listening("mail", url=env["TIDEMILL_BROKER_URL"]) as found:
        yield found


@pytest.mark.parametrize("wiped", [False, True])
@pytest.mark.parametrize("point", RELAY)
def test_the_relay_dies(
    point: str,
    env: dict[str, str],
    seen: kit.Seen,
    processes: Processes,
    session: Session,
    tmp_path: Path,
    *,
    wiped: bool,
) -> None:
    """At a step of the first batch, or of the one after; and perhaps the broker is wiped before another goes on."""
    kit.save_all(session, 5)
    dying = processes.scheduler(env | die_at(point, tmp_path / "died"), ready=False)
    assert dying.wait(SECONDS) == EXIT_STATUS, dying.log
    kit.save_all(session, 5)
    if wiped:
        kit.wipe(env["TIDEMILL_BROKER_URL"])
    processes.scheduler(env)
    kit.all_seen(session, seen, SECONDS)
    kit.save_all(session, 2)
    kit.all_seen(session, seen, SECONDS)


def test_a_frozen_relay_wakes_up(env: dict[str, str], seen: kit.Seen, processes: Processes, session: Session) -> None:
    """Another has taken over meanwhile."""
    first = processes.scheduler(env)
    first.wait_for(LEADS, SECONDS)
    kit.save_all(session, 5)
    kit.all_seen(session, seen, SECONDS)
    first.stop()
    second = processes.scheduler(env)
    kit.save_all(session, 20)
    second.wait_for(LEADS, SECONDS)
    kit.all_seen(session, seen, SECONDS)
    first.cont()
    kit.save_all(session, 20)
    kit.all_seen(session, seen, SECONDS)


def test_writers_while_relays_are_killed(
    env: dict[str, str], seen: kit.Seen, processes: Processes, session: Session
) -> None:
    """Three programs write to the same entities at once, in transactions that overlap."""
    writers = [processes.python(kit.SAVING.format(count=60, entities=4), env, f"writer{n}") for n in range(3)]
    for _ in range(3):
        relay = processes.scheduler(env)
        relay.wait_for(LEADS, SECONDS)
        _goes_on(seen, writers)
        relay.kill()
    assert [writer.wait(SECONDS) for writer in writers] == [0, 0, 0]
    processes.scheduler(env)
    kit.all_seen(session, seen, SECONDS)
    assert seen.count == 180


def _goes_on(seen: kit.Seen, writers: list[Process]) -> None:
    before = seen.count
    wait_until(lambda: seen.count > before or all(writer.status == 0 for writer in writers), SECONDS)


def test_the_broker_is_down_while_events_pile_up(
    env: dict[str, str], seen: kit.Seen, processes: Processes, session: Session, servers: OwnServers
) -> None:
    """Nothing is lost, dispatch goes on, and the row says why."""
    relay = processes.scheduler(env)
    relay.wait_for(LEADS, SECONDS)
    kit.save_all(session, 5)
    kit.all_seen(session, seen, SECONDS)
    servers.broker.kill()
    kit.save_all(session, 700, 50)
    wait_until(lambda: kit.state(session).error is not None, SECONDS)
    servers.broker.start()
    kit.all_seen(session, seen, SECONDS)
    wait_until(lambda: kit.state(session).error is None, SECONDS)
    assert relay.status is None


@pytest.mark.parametrize("how", ["flushed", "anew"])
def test_the_broker_is_wiped_under_the_relay(
    how: str, env: dict[str, str], seen: kit.Seen, processes: Processes, session: Session, servers: OwnServers
) -> None:
    """While everybody is connected, or by a start with empty disks."""
    relay = processes.scheduler(env)
    relay.wait_for(LEADS, SECONDS)
    kit.save_all(session, 20)
    kit.all_seen(session, seen, SECONDS)
    kit.save_all(session, 50)
    if how == "flushed":
        kit.wipe(env["TIDEMILL_BROKER_URL"])
    else:
        servers.broker.wipe()
        servers.broker.start()
    kit.save_all(session, 50)
    kit.all_seen(session, seen, SECONDS)
    assert len(seen.given) > seen.count


def test_beat_and_a_worker_relay_too(
    env: dict[str, str], seen: kit.Seen, processes: Processes, session: Session
) -> None:
    """The MVP mode: a control task."""
    processes.celery_worker(env, concurrency=1)
    processes.beat(env)
    kit.save_all(session, 10)
    kit.all_seen(session, seen, SECONDS)


def test_a_dead_broker_of_events_delays_no_dispatch(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    """It may be another one than that of tickets. It accepts connections and says nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as deaf:
        deaf_url = f"redis://127.0.0.1:{deaf.getsockname()[1]}/0"
        kit.save_all(session, 1)
        relay = processes.scheduler(env | {"TIDEMILL_EVENTS_URL": deaf_url})
        relay.wait_for("the broker does not take events", SECONDS)
        processes.celery_worker(env, concurrency=1)
        for number in range(5):
            enqueue(tasks.record.s(str(number)))
        wait_until(lambda: len(rows.executions(session)) == 5, SECONDS)
    assert kit.state(session).error is not None
