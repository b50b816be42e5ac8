"""One leader for each duty, and another when it is gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import duties as module
from app.db import new_engine
from app.duties import Duties, number_of
from app.embedded import OwnServers
from app.errors import Unavailable
from app.health.finding import Level
from app.health.work import services
from app.locks import DUTIES
from tests.kit.database import Databases
from tests.kit.waiting import wait_until


@pytest.fixture
def two(database_url: str) -> Iterator[tuple[Duties, Duties]]:
    """Two services, in one process."""
    found = Duties(), Duties()
    yield found
    for each in found:
        each.drop()
        if each._engine is not None:
            each._engine.dispose()


def test_one_holds_a_duty_at_a_time(two: tuple[Duties, Duties]) -> None:
    first, second = two
    assert [first.hold("sweep"), second.hold("sweep"), first.hold("sweep")] == [True, False, True]
    assert second.hold("dispatch"), "another duty, another leader"
    assert not first.hold("dispatch")


def test_dropping_frees_all_at_once(two: tuple[Duties, Duties]) -> None:
    first, second = two
    for name in ("a", "b", "c"):
        assert first.hold(name)
    first.drop()
    wait_until(lambda: all(second.hold(name) for name in ("a", "b", "c")), 60)


def test_a_pass_asked_for_twice_is_made_once(two: tuple[Duties, Duties]) -> None:
    first, second = two
    with first.only_one("p") as mine, second.only_one("p") as theirs:
        assert (mine, theirs) == (True, False)
    with second.only_one("p") as theirs:
        assert theirs, "also after one that failed"


def test_a_pass_that_fails_gives_the_duty_back(two: tuple[Duties, Duties]) -> None:
    first, second = two

    def fails() -> None:
        with first.only_one("p"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert second.hold("p")


def test_a_frozen_leader_loses_its_duties(two: tuple[Duties, Duties], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FROZEN_SECONDS", 1)
    first, second = two
    assert first.hold("sweep")
    wait_until(lambda: second.hold("sweep"), 60, "the one that says nothing is replaced")
    with pytest.raises(Unavailable):
        first.hold("sweep")
    assert not first.hold("sweep"), "it learns of it with its next word, and goes on as one of the others"


def test_a_leader_that_works_keeps_its_duty(two: tuple[Duties, Duties], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FROZEN_SECONDS", 5)
    first, second = two
    first.hold("sweep")
    for _ in range(30):
        wait_until(lambda: True)
        assert first.hold("sweep")
        with pytest.raises(AssertionError):
            wait_until(lambda: second.hold("sweep"), 0.2)


def test_without_the_database_there_is_no_leader(two: tuple[Duties, Duties], servers: OwnServers) -> None:
    first, _ = two
    first.hold("sweep")
    servers.postgres.kill()
    for _ in range(2):
        with pytest.raises(Unavailable):
            first.hold("sweep")
    servers.postgres.start()
    assert first.hold("sweep")


def test_the_locks_are_apart_from_those_of_the_users_programs(two: tuple[Duties, Duties], engine: Engine) -> None:
    two[0].hold("sweep")
    with engine.connect() as connection:
        held = connection.execute(sa.text("SELECT classid FROM pg_locks WHERE locktype = 'advisory'")).scalars().all()
    assert held == [DUTIES]


def test_what_is_led_in_another_database_is_not_led_here(engine: Engine, databases: Databases) -> None:
    """Postgres shows the locks of all databases to everybody."""
    url = databases.empty()
    elsewhere = new_engine(url, pool_size=1)
    with elsewhere.connect() as other, Session(engine) as session:
        other.execute(sa.select(sa.func.pg_advisory_lock(DUTIES, number_of("sweep"))))
        assert services(session).level == Level.WARN
        assert not module.led(session, ["sweep"])
        session.execute(sa.select(sa.func.pg_advisory_lock(DUTIES, number_of("sweep"))))
        assert services(session).level == Level.OK
        assert module.led(session, ["sweep"]) == {"sweep"}
    elsewhere.dispose()
    databases.drop(url)
