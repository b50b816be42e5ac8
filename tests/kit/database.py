"""A database of its own for each test: a copy of a template that was migrated once for the server."""

from __future__ import annotations

import uuid

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url

from app.db import new_engine
from app.migrate import migrate

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


class Databases:
    """On one server. `url` is that of the account that tests use; `admin_url` may create and drop databases."""

    def __init__(self, admin_url: str, url: str) -> None:
        self.url = make_url(url)
        self.admin = sa.create_engine(admin_url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        self._template: str | None = None

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
            engine.dispose()
            self._template = make_url(url).database
        return self._create(str(self._template))

    def _create(self, template: str) -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        self._run(f'CREATE DATABASE "{name}" TEMPLATE "{template}" OWNER "{self.url.username}"')
        return self._at(name)

    def drop(self, url: str) -> None:
        self._run(f'DROP DATABASE IF EXISTS "{make_url(url).database}" WITH (FORCE)')

    def close(self) -> None:
        if self._template is not None:
            self.drop(self._at(self._template))
            self._template = None
