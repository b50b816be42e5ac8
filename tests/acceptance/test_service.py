"""The scheduler service as processes: hints, leaders that die, freeze or are told to stop, Postgres that restarts
(T17, T18, T19)."""

from __future__ import annotations

import re
import signal
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.embedded import OwnServers
from app.registry import registry
from tests.kit import reactive as kit
from tests.kit import rows
from tests.kit.database import make_durable
from tests.kit.process import Process, Processes
from tests.kit.waiting import never_within, wait_until
from triggers.model import RUN, ReactiveCursor

LEADS = "leader of reactive_service"
STEP = timedelta(hours=1)


@pytest.fixture
def env(env: dict[str, str]) -> dict[str, str]:
    return env | {"TIDEMILL_MODULES": "tests.kit.reactive_tasks"}


def _move(number: int) -> None:
    kit.advance(kit.BEGIN + number * STEP)


def _runs(session: Session) -> int:
    session.rollback()
    return session.execute(sa.select(sa.func.count()).select_from(RUN)).scalar_one()


def _followed(session: Session, count: int, seconds: float = 60) -> None:
    wait_until(lambda: len(rows.executions(session)) == count, seconds, f"{count} executions")


def _term(session: Session) -> int:
    session.rollback()
    return session.execute(sa.select(ReactiveCursor.term)).scalar_one()


def test_changes_become_work_through_dead_and_frozen_leaders(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    # T18, T19
    processes.celery_worker(env, concurrency=1)
    first = processes.scheduler(env)
    first.wait_for(LEADS)
    _move(1)
    _followed(session, 1)
    second = processes.scheduler(env)
    first.kill()
    _move(2)
    second.wait_for(LEADS)
    _followed(session, 2)
    third = processes.scheduler(env)
    term = _term(session)
    second.stop()
    _move(3)
    third.wait_for(LEADS, 300)
    _followed(session, 3)
    assert _term(session) == term + 1
    second.cont()
    wait_until(lambda: "failed, the next try" in second.log, 300)
    _move(4)
    _followed(session, 4)
    assert never_within(lambda: _term(session) != term + 1, 1), "the one that woke up did not take it back"
    assert _runs(session) == 4
    assert kit.violations() == []
    for each in (second, third):
        each.terminate()
        assert each.wait() == 0, each.log


def test_postgres_restarts_under_the_service(
    env: dict[str, str], processes: Processes, session: Session, servers: OwnServers
) -> None:
    # T19
    make_durable(session)
    scheduler = processes.scheduler(env)
    processes.celery_worker(env, concurrency=1)
    scheduler.wait_for(LEADS)
    _move(1)
    _followed(session, 1)
    session.close()
    servers.postgres.kill()
    servers.postgres.start()
    _move(2)
    _followed(session, 2)
    # What it had in mind was read anew: the server may have lost what was committed last.
    scheduler.wait_for(lambda log: log.count("following 1 reactive tasks") == 2)
    assert scheduler.log.count(LEADS) == 2


def test_it_stops_at_once_when_told(env: dict[str, str], processes: Processes) -> None:
    """From the middle of pauses that would go on for twenty minutes."""
    more = {"TIDEMILL_MODULES": f"{env['TIDEMILL_MODULES']},tests.kit.patience", "TIDEMILL_LOG_LEVEL": "DEBUG"}
    names = [name for name, each in registry.passes.items() if each.scheduler]

    def all_were_made(log: str) -> bool:
        return all(re.search(rf"\b{name}: .* in [\d.]+ ms", log) for name in (*names, "dispatch_shards"))

    for number in (signal.SIGTERM, signal.SIGINT):
        scheduler = processes.scheduler(env | more)
        scheduler.wait_for(all_were_made)
        Process._signal(scheduler, number)
        assert scheduler.wait() == 0, scheduler.log
        assert "Traceback" not in scheduler.log


def test_beat_and_the_service_side_by_side(env: dict[str, str], processes: Processes, session: Session) -> None:
    # T17
    env = env | {"TIDEMILL_POLL_INTERVAL": "200ms"}
    processes.celery_worker(env, concurrency=2)
    processes.beat(env)
    processes.scheduler(env).wait_for(LEADS)
    for number in range(1, 6):
        _move(number)
        _followed(session, number)
    assert (_runs(session), kit.violations()) == (5, [])
