"""A database of its own for each test: a copy of a template that was migrated once for the server."""

from __future__ import annotations

import uuid
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.orm import Session

from app import db
from app.db import new_engine
from app.migrate import migrate
from app.settings import settings
from tests.kit import visit
from tests.kit.waiting import wait_until

#: What the tasks of `tests.kit.tasks` did, so that a test can count executions.
EXECUTION = """
CREATE TABLE public.execution (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task text NOT NULL,
    value text NOT NULL,
    job_id bigint,
    attempt int,
    pid int NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz
)
"""


#: Whether the database is as it was made, once its rows are gone: no relation more or less, none that has grown.
CLEANED = """
DO $$
DECLARE
    name regclass;
BEGIN
    PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
    FOR name IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relname NOT IN ('alembic_version', 'sharding')
        AND relnamespace IN ('tidemill'::regnamespace, 'public'::regnamespace)
    LOOP
        IF pg_relation_size(name) > 500000 THEN
            RAISE EXCEPTION '% has grown', name;
        END IF;
        EXECUTE format('DELETE FROM %s', name);
    END LOOP;
    PERFORM setval(oid::regclass, 1, false) FROM pg_class WHERE relkind = 'S';
END
$$
"""
CATALOG = """
SELECT md5(string_agg(row::text, ' ' ORDER BY row::text)) FROM (
    SELECT relname, relnamespace, relkind, relacl, relowner FROM pg_class WHERE relnamespace >= 2200
        AND relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname ~ '^pg_' OR nspname = 'information_schema')
) AS row
"""


class Databases:
    """On one server. `url` is that of the account that tests use; `admin_url` may create and drop databases.

    A copy of the template takes 0.1 to 0.3 s, cleaning one that only has other rows 10 ms: so they are lent.
    """

    def __init__(self, admin_url: str, url: str) -> None:
        self.url = make_url(url)
        self.admin = sa.create_engine(admin_url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        self._template: str | None = None
        self._catalog: str | None = None
        self._clean: list[str] = []

    def _run(self, statement: str) -> None:
        with self.admin.connect() as connection:
            connection.exec_driver_sql(statement)

    def _at(self, name: str) -> str:
        url: URL = self.url.set(database=name)
        return url.render_as_string(hide_password=False)

    def empty(self) -> str:
        """One without the schema."""
        return self._create("template1")

    def clone(self) -> str:
        if self._template is None:
            url = self.empty()
            engine = new_engine(url, pool_size=1)
            migrate(engine)
            with engine.begin() as connection:
                connection.exec_driver_sql(EXECUTION)
                visit.Tables.metadata.create_all(connection)
            engine.dispose()
            self._template = make_url(url).database
        return self._create(str(self._template))

    def lend(self) -> str:
        """Like `clone`; to be given back."""
        if self._clean:
            return self._clean.pop()
        url = self.clone()
        self._catalog = self._catalog or _read(url, CATALOG)
        return url

    def give_back(self, url: str) -> None:
        """Cleaned if that is possible, dropped if not."""
        try:
            _read(url, CLEANED)
            unchanged = _read(url, CATALOG) == self._catalog
        except sa.exc.SQLAlchemyError:
            unchanged = False
        if unchanged:
            self._clean.append(url)
        else:
            self.drop(url)

    def _create(self, template: str) -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        self._run(f'CREATE DATABASE "{name}" TEMPLATE "{template}" OWNER "{self.url.username}"')
        return self._at(name)

    def drop(self, url: str) -> None:
        self._run(f'DROP DATABASE IF EXISTS "{make_url(url).database}" WITH (FORCE)')

    def close(self) -> None:
        for url in self._clean:
            self.drop(url)
        self._clean.clear()
        if self._template is not None:
            self.drop(self._at(self._template))
            self._template = None


def make_durable(session: Session) -> None:
    """For a test that kills the server: what was committed must be on disk, as in production."""
    name = session.execute(sa.select(sa.func.current_database())).scalar_one()
    session.execute(sa.text(f'ALTER DATABASE "{name}" SET synchronous_commit = on'))
    session.commit()
    session.close()
    db.dispose()


def up_for_long(engine: Engine) -> None:
    """Waits until the server has been up for a lease: before, sweeps find nothing (R6). Of a test that is played alone,
    it may just have been started."""
    wait_until(lambda: _up_for(engine, settings().lease), what="the server has been up for a lease")


def _up_for(engine: Engine, lease: timedelta) -> bool:
    up = sa.func.pg_postmaster_start_time() < sa.func.now() - lease
    with engine.connect() as connection:
        return bool(connection.execute(sa.select(up)).scalar_one())


def _read(url: str, statement: str) -> str | None:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        result = connection.exec_driver_sql(statement.replace("%", "%%"))
        return str(result.scalar_one()) if result.returns_rows else None
