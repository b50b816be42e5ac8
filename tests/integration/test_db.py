"""The database of a process: bounded, fresh after a fork, clear about what is wrong (J7)."""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg2
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import db
from app.db import autocommit, engine, new_engine, remaining_time, transaction
from app.embedded import OwnServers
from app.errors import DatabaseError, NotMigrated, PoolExhausted, Unavailable
from app.jobs import enqueue
from app.settings import settings
from tests.kit.rows import count
from tests.kit.tasks import noop
from tests.kit.waiting import wait_until

PID = sa.text("SELECT pg_backend_pid()")


def pids() -> int:
    with transaction() as session:
        return int(session.execute(PID).scalar_one())


def test_a_transaction_commits_at_the_end_or_not_at_all(session: Session) -> None:
    with transaction() as tx:
        tx.execute(sa.text("CREATE TABLE t (n int)"))
        tx.execute(sa.text("INSERT INTO t VALUES (1)"))

    def broken() -> None:
        with transaction() as tx:
            tx.execute(sa.text("INSERT INTO t VALUES (2)"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert session.execute(sa.text("SELECT sum(n) FROM t")).scalar_one() == 1


def test_connections_that_are_given_up_are_not_worth_a_line(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert pids()
        db.dispose()
    assert caplog.messages == []


def test_a_fork_has_connections_of_its_own(database_url: str) -> None:
    # J7
    before = pids()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(write, str(pids()).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as told:
        assert int(told.read()) != before
    assert pids() == before, "and the parent's still works"


def test_no_more_connections_than_the_pool_has(monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    # J7
    monkeypatch.setenv("TIDEMILL_POOL_SIZE", "2")
    settings.cache_clear()
    monkeypatch.setattr(engine().pool, "_timeout", 0.1)
    with transaction() as one, transaction() as two:
        one.execute(PID)
        two.execute(PID)
        with pytest.raises(PoolExhausted, match="raise TIDEMILL_POOL_SIZE"), transaction() as three:
            three.execute(PID)
    assert pids()


def test_a_worker_child_has_one_connection_and_a_second_in_need(
    monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    # J7
    monkeypatch.setattr(db._process, "worker_child", True)
    monkeypatch.setattr(engine().pool, "_timeout", 0.1)
    with transaction() as one, transaction() as two:
        one.execute(PID)
        two.execute(PID)
        with pytest.raises(PoolExhausted), transaction() as three:
            three.execute(PID)
    assert engine().pool.checkedin() == 1, "the second one is closed"  # type: ignore[attr-defined]


def test_a_connection_that_the_server_closed_is_replaced(databases: Any, database_url: str) -> None:
    before = pids()
    with databases.admin.connect() as admin:
        admin.execute(sa.text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": before})
    assert pids() != before, "without an error"
    with databases.admin.connect() as admin:
        admin.execute(sa.text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pids()})
    with autocommit() as connection:
        assert connection.execute(sa.select(1)).scalar_one() == 1


def test_a_connection_that_is_left_in_a_transaction_is_replaced(database_url: str) -> None:
    # As after a COMMIT that was cancelled: the driver does not know of it.
    with autocommit() as connection:
        left = connection.execute(PID).scalar_one()
        connection.exec_driver_sql("BEGIN")
    assert pids() != left, "without an error"


def test_a_connection_that_breaks_in_a_transaction_is_unavailable(databases: Any, database_url: str) -> None:
    def work() -> None:
        with transaction() as session:
            pid = session.execute(PID).scalar_one()
            with databases.admin.connect() as admin:
                admin.execute(sa.text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})
            session.execute(sa.select(1))

    with pytest.raises(Unavailable, match="the database does not answer"):
        work()
    assert pids(), "and the next one is fine"


def test_the_server_notices_a_machine_that_vanished(database_url: str) -> None:  # J7 S17
    """Within seconds: until then its open transaction holds what it has locked."""
    names = ("idle", "interval", "count")
    with db.engine().connect() as connection:
        found = [connection.exec_driver_sql(f"SHOW tcp_keepalives_{each}").scalar_one() for each in names]
        assert found == ["5", "2", "3"]
        assert connection.exec_driver_sql("SHOW tcp_user_timeout").scalar_one() == "30000"


def test_autocommit_leaves_nothing_behind_on_the_connection(database_url: str) -> None:
    with autocommit() as connection:
        connection.execute(sa.text("CREATE TABLE t (n int)"))
    with pytest.raises(sa.exc.ProgrammingError), autocommit() as connection:
        connection.execute(sa.text("SELECT nonsense"))
    with engine().connect() as connection:
        connection.execute(sa.text("INSERT INTO t VALUES (1)"))
        connection.rollback()
        assert connection.execute(sa.text("SELECT count(*) FROM t")).scalar_one() == 0


def test_postgres_that_is_down_is_unavailable_and_comes_back(servers: OwnServers, database_url: str) -> None:
    pids()
    servers.postgres.kill()
    for ask in (pids, lambda: enqueue(noop.s())):
        with pytest.raises(Unavailable, match="the database does not answer"):
            ask()
    servers.postgres.start()
    assert pids()


def test_a_wrong_address_is_unavailable() -> None:
    nowhere = new_engine("postgresql+psycopg2://u:s3cret@127.0.0.1:9/x", pool_size=1)
    with pytest.raises(Unavailable) as error:
        nowhere.connect()
    assert "s3cret" not in str(error.value)


def test_too_many_clients_is_unavailable(databases: Any, database_url: str) -> None:
    limit = f'ALTER DATABASE "{engine().url.database}" CONNECTION LIMIT'
    with databases.admin.connect() as admin, transaction() as held:
        held.execute(PID)
        admin.exec_driver_sql(f"{limit} 1")
        with pytest.raises(Unavailable), transaction() as more:
            more.execute(PID)
        admin.exec_driver_sql(f"{limit} -1")


def test_without_the_schema_it_says_to_migrate(empty_database_url: str) -> None:
    with pytest.raises(NotMigrated, match="run 'tidemill migrate'"):
        enqueue(noop.s())


def test_a_mistake_of_the_user_is_left_as_it_is(database_url: str) -> None:
    for statement, error in (
        ("SELECT * FROM no_such_table", sa.exc.ProgrammingError),
        ("SELECT 1/0", sa.exc.DataError),
        ("SELECT nosuchfunction()", sa.exc.ProgrammingError),
    ):
        with pytest.raises(error) as raised, transaction() as tx:
            tx.execute(sa.text(statement))
        assert not isinstance(raised.value, DatabaseError)


def test_a_call_with_a_time_limit_bounds_its_queries(database_url: str) -> None:
    token = remaining_time.set(lambda: 0.2)
    try:
        with pytest.raises(sa.exc.OperationalError) as raised, transaction() as tx:
            tx.execute(sa.text("SELECT pg_sleep(20)"))
        assert isinstance(raised.value.orig, psycopg2.errors.QueryCanceled)
    finally:
        remaining_time.reset(token)
    with transaction() as tx:
        assert tx.execute(sa.text("SHOW statement_timeout")).scalar_one() == "0", "of that transaction only"


def test_threads_share_the_pool(database_url: str, session: Session) -> None:
    def work(_: int) -> None:
        enqueue(noop.s())

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(40)))
    assert count(session) == 40


def test_dispose_closes_and_the_next_use_opens(databases: Any, database_url: str, engine: Engine) -> None:
    pid = pids()
    db.dispose()
    alive = sa.text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")
    with databases.admin.connect() as admin:
        wait_until(lambda: admin.execute(alive, {"pid": pid}).scalar_one() == 0)
    assert pids() != pid


def test_a_full_disk_is_the_servers_trouble_and_not_the_statements(engine: Engine) -> None:
    with pytest.raises(Unavailable, match="no room left: could not extend file"), engine.begin() as connection:
        connection.exec_driver_sql(
            "DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
        )
