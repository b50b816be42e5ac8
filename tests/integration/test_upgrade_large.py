"""What a migration does to large tables, and to those who use them meanwhile. A million rows:
`tests/chaos/test_upgrade_million.py`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command

from app import db, migrate
from app.db import new_engine
from tests.integration.test_upgrade import REVISIONS
from tests.kit.upgrade.large import LARGE, Whole, files, fill, whole
from tests.kit.upgrade.releases import upgrade_to
from tests.kit.waiting import wait_until

#: All else leaves the rows that are there alone, however many there are. docs/howto/upgrade.md has how long these take.
THROUGH = {
    "0003": Whole((), ("ctl_change_changed_at",)),
    "0009": Whole(
        ("broken_task",),
        (
            *("process_attributes", "process_begun", "process_custom_id", "process_idempotency"),
            *("process_registered_at", "process_words"),
        ),
    ),
    "0010": Whole((), ("process_copied_from",)),
    "0011": Whole((), ("audit_actor",)),
    "0013": Whole((), ("decision_running", "job_running", "repair_at", "stage_visit_running")),
    "0016": Whole(("broken_task",), ()),
}
#: Not of pg_stat_activity, which is the same for all of a transaction.
_BLOCKED = (
    "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted AND pg_blocking_pids(pid) = ARRAY[CAST(:pid AS int)]"
)


class HalfWay:
    def __init__(self) -> None:
        self.pid, self.there, self.go_on = 0, threading.Event(), threading.Event()


def test_only_these_migrations_go_through_a_large_table(empty_database_url: str) -> None:
    engine = db.engine()
    found = {}
    for revision in REVISIONS:
        with engine.begin() as connection:
            before = files(connection)
        upgrade_to(engine, revision)
        with engine.begin() as connection:
            found[revision] = whole(before, files(connection))
            for table in LARGE.get(revision, ()):
                fill(connection, table, 100)
    assert {revision: each for revision, each in found.items() if each != Whole((), ())} == THROUGH


@pytest.fixture
def half_way(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[HalfWay]:
    """A migration from the first revision, which stands before its commit until it is let go."""
    upgrade_to(db.engine(), REVISIONS[0])
    with db.engine().begin() as connection:
        for table in LARGE[REVISIONS[0]]:
            fill(connection, table, 100)
        connection.exec_driver_sql("CREATE TABLE public.parcel (id bigint)")
    own, found = new_engine(empty_database_url, pool_size=1), HalfWay()

    def upgrade(config: Any, revision: str) -> None:
        raw: Any = config.attributes["connection"].connection.driver_connection
        command.upgrade(config, revision)
        found.pid = raw.info.backend_pid
        found.there.set()
        assert found.go_on.wait(120)

    monkeypatch.setattr(migrate, "command", SimpleNamespace(upgrade=upgrade))
    with ThreadPoolExecutor(1) as pool:
        try:
            migrating = pool.submit(migrate.migrate, own)
            assert found.there.wait(120)
            yield found
        finally:
            found.go_on.set()
        assert migrating.result(120).current == REVISIONS[0]
    own.dispose()


def test_who_comes_while_it_migrates_waits_once_and_goes_on(half_way: HalfWay) -> None:
    """Readers and writers of every table: for the migration alone, and none is sent away."""
    statements = [
        statement
        for table in LARGE[REVISIONS[0]]
        for statement in (f"SELECT count(*) FROM tidemill.{table}", f"DELETE FROM tidemill.{table} WHERE id <= 10")  # noqa: S608
    ]
    looking, waiting = db.engine().connect(), sa.text(_BLOCKED)
    with looking, ThreadPoolExecutor(len(statements)) as pool:
        running = [pool.submit(_ran, each) for each in statements]
        wait_until(lambda: looking.execute(waiting, {"pid": half_way.pid}).scalar_one() == len(statements), 60)
        # What is not ours goes on.
        assert looking.exec_driver_sql("INSERT INTO public.parcel VALUES (1)").rowcount == 1
        half_way.go_on.set()
        assert [each.result(120) for each in running] == [1, 10, 1, 10]


def _ran(statement: str) -> int:
    """How many rows it gave, or changed."""
    with db.engine().begin() as connection:
        return connection.exec_driver_sql(statement).rowcount
