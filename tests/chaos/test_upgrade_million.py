"""A database with a million rows in each of its large tables is migrated from the first revision to the last. `-s`
prints how long each migration took, and how much of that it computed, for docs/howto/upgrade.md: for that long it has
the tables for itself."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app import migrate
from app.db import new_engine
from tests.integration.test_upgrade import REVISIONS
from tests.kit.upgrade.large import LARGE, files, fill, whole
from tests.kit.upgrade.releases import upgrade_to

pytestmark = pytest.mark.chaos
COUNT = int(os.environ.get("ROWS", "1000000"))


def test_a_large_database_is_migrated(empty_database_url: str) -> None:
    # One process of Postgres makes it all: what others compute is not counted.
    engine = new_engine(empty_database_url, pool_size=1, options="-c max_parallel_maintenance_workers=0")
    for revision in REVISIONS:
        with engine.begin() as connection:
            before = files(connection)
        begun, used = time.monotonic(), _computed(engine)
        upgrade_to(engine, revision)
        took, used = time.monotonic() - begun, _computed(engine) - used
        with engine.begin() as connection:
            did = whole(before, files(connection))
            for table in LARGE.get(revision, ()):
                fill(connection, table, COUNT)
        print(f"{revision} {took:6.1f} s, computed {used:5.1f} s; {did}")
    assert migrate.state(engine).current_is_wanted
    with engine.connect() as connection:
        for table in [each for tables in LARGE.values() for each in tables]:
            query = sa.text(f"SELECT count(*) FROM tidemill.{table}")  # noqa: S608
            assert connection.execute(query).scalar_one() == COUNT, table
    engine.dispose()


def _computed(engine: Engine) -> float:
    """Seconds of the process of Postgres that serves its one connection."""
    with engine.connect() as connection:
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
