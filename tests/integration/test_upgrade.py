"""Migrations of databases that have rows, and are in use; of data that earlier releases wrote (`tests.kit.upgrade`)."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory
from celery.concurrency.prefork import TaskPool
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session

from app import db, migrate, registration, schema
from app.celery import app as celery_app
from app.db import new_engine
from app.errors import NotMigrated
from app.jobs.model import Job
from app.stopping import stopping
from app.worker import Service
from tests.integration.test_migrations import CATALOGS, catalog
from tests.kit.cli import Tidemill, one_sentence, tidemill
from tests.kit.tasks import noop
from tests.kit.upgrade import rows
from tests.kit.upgrade.releases import load, upgrade_to
from tests.kit.waiting import pause, wait_until
from tidemill import enqueue

__all__ = ["tidemill"]
REVISIONS = sorted(each.revision for each in ScriptDirectory.from_config(migrate.config()).walk_revisions())
BEFORE, HEAD = REVISIONS[-2:]
FUNCTIONS = sa.text(
    "SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'tidemill'::regnamespace"
)
TRIGGERS = sa.text(
    "SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid "
    "WHERE relnamespace = 'tidemill'::regnamespace AND NOT tgisinternal"
)
OF_A_TABLE = sa.text(
    "SELECT relname FROM pg_class WHERE relnamespace = 'tidemill'::regnamespace AND relkind = 'r' "
    "AND relname <> 'alembic_version'"
)


@pytest.mark.parametrize("name", ["first.dump", "before.dump"])
def test_an_old_database_becomes_what_a_new_one_is(
    name: str, empty_database_url: str, engine: Engine, databases: Any, subtests: pytest.Subtests
) -> None:
    """What was released once is not edited: otherwise it would differ here."""
    url = databases.empty()
    load(name, url)
    old = new_engine(url, pool_size=1)
    migrate.migrate(old)
    for what, query in (CATALOGS | {"functions": FUNCTIONS, "triggers": TRIGGERS}).items():
        with subtests.test(what):
            expected = catalog(engine, query)
            assert expected
            assert catalog(old, query) == expected
    old.dispose()
    databases.drop(url)


def _rows(connection: Connection) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for table in connection.execute(OF_A_TABLE).scalars().all():
        query = sa.text(f"SELECT to_jsonb(each) FROM tidemill.{table} AS each ORDER BY 1")  # noqa: S608
        found[table] = list(connection.execute(query).scalars())
    return found


@pytest.mark.parametrize("name", ["first.dump", "before.dump"])
def test_every_row_passes_every_migration(name: str, empty_database_url: str, subtests: pytest.Subtests) -> None:
    load(name, empty_database_url)
    engine = db.engine()
    begun = migrate.state(engine).current
    assert begun in REVISIONS
    added = set()
    for revision in [each for each in REVISIONS if each > begun]:
        with subtests.test(revision), engine.begin() as connection:
            before = _rows(connection)
            assert sum(map(len, before.values())) > 50
        upgrade_to(engine, revision)
        with engine.begin() as connection:
            after = _rows(connection)
            with subtests.test(f"{revision}: what there was"):
                for table, found in before.items():
                    kept = set(before[table][0]) if before[table] else set()
                    assert [{word: row[word] for word in row if word in kept} for row in after[table]] == found, table
            for table in before:
                news = [{word: row[word] for word in row if word not in before[table][0]} for row in after[table]]
                if any(news):
                    added.add((revision, table))
                    with subtests.test(f"{revision}: what is new in {table}"):
                        assert _plain(news) == [rows.ADDED[revision, table]] * len(news)
            for statement in rows.ROWS.get(revision, ()):
                connection.execute(sa.text(statement.replace(":", "\\:")))
    assert added == {each for each in rows.ADDED if each[0] > begun}
    _is_understood(engine)


def _plain(news: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A fingerprint is a computed value: it is compared with that of a new row."""
    return [{word: "?" if word == "fingerprint" else value for word, value in row.items()} for row in news]


def _is_understood(engine: Engine) -> None:
    """By the models of this release; and what is computed is what a new row has."""
    with Session(engine) as session:
        for model in schema.TABLES:
            assert session.scalars(sa.select(model)).all() is not None
        assert session.scalars(sa.select(Job).where(Job.state == "running")).one().attempts == 1
        same = rows.ROWS["0006"][-1].replace("VALUES (1, 1,", "VALUES (1, 2,")
        session.execute(sa.text(same))
        prints = sa.text("SELECT count(*), count(DISTINCT fingerprint) FROM tidemill.broken_task")
        assert tuple(session.execute(prints).one()) == (2, 1)


def test_what_is_known_of_an_error_and_searches_go_on_with_its_new_fingerprint(empty_database_url: str) -> None:
    engine = db.engine()
    upgrade_to(engine, "0015")
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO tidemill.broken_task (process_id, number, actor, type, message) "
                "SELECT n, 1, 'charge', 'E', format('Failing row contains (%s, %s)', n, left('null', n)) "
                "FROM generate_series(1, 4) n"
            )
        )
        connection.execute(
            sa.text(
                "INSERT INTO tidemill.known_error (name, fingerprint, says, proposes, created_by) "
                "SELECT number, fingerprint, 'down', 'none', 'o' FROM tidemill.broken_task WHERE process_id = 2 "
                "UNION ALL SELECT 2, 'of nobody', 'up', 'none', 'o'"
            )
        )
        connection.execute(
            sa.text(
                "INSERT INTO tidemill.search_template (name, filters, created_by) "
                "SELECT 't', jsonb_build_object('fingerprint', fingerprint, 'type', 'f'), 'o' "
                "FROM tidemill.broken_task WHERE process_id = 3"
            )
        )
        told = sa.text(
            "SELECT (SELECT count(DISTINCT fingerprint) FROM tidemill.broken_task), "
            "(SELECT array_agg(fingerprint ORDER BY name) FROM tidemill.known_error), "
            "(SELECT filters FROM tidemill.search_template), (SELECT min(fingerprint) FROM tidemill.broken_task)"
        )
        assert connection.execute(told).one()[0] == 4
    migrate.migrate(engine)
    with engine.begin() as connection:
        count, known, filters, made = connection.execute(told).one()
    assert (count, known, filters) == (1, [made, "of nobody"], {"fingerprint": made, "type": "f"})


def test_a_table_in_use_is_not_waited_for_in_the_way_of_others(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a transaction that does not end holds the queue, others enqueue between the tries."""
    monkeypatch.setattr(migrate, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(migrate, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(migrate, "TRIES", 10_000)
    engine = db.engine()
    upgrade_to(engine, "0011")
    tries: list[str] = []
    monkeypatch.setattr(migrate.log, "warning", lambda *words: tries.append(words[1]))
    own = new_engine(empty_database_url, pool_size=1)
    migrating = threading.Thread(target=migrate.migrate, args=(own,))
    with engine.connect() as holder, engine.connect() as other:
        holder.execute(sa.text("SELECT FROM tidemill.job"))
        migrating.start()
        wait_until(lambda: len(tries) >= 2)
        before = len(tries)
        for _ in range(3):
            other.execute(sa.text("INSERT INTO tidemill.job (task, queue) VALUES ('t', 'jobs')"))
            other.commit()
        wait_until(lambda: len(tries) > before)
        assert (set(tries), migrate.state(engine).current) == ({"job"}, "0011")
        holder.rollback()
        migrating.join(60)
    assert migrate.state(engine).current_is_wanted
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM tidemill.job")).scalar_one() == 3
    own.dispose()


def test_who_has_begun_is_not_ended_by_a_circle(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds what the migration wants, and wants what the migration holds: the migration lets go."""
    monkeypatch.setattr(migrate, "PAUSE_SECONDS", 0.01)
    engine = db.engine()
    upgrade_to(engine, "0011")
    own = new_engine(empty_database_url, pool_size=1)
    migrating = threading.Thread(target=migrate.migrate, args=(own,))
    waits = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'tidemill.process'::regclass")
    with engine.connect() as worker, engine.connect() as looker:
        worker.execute(sa.text("SELECT FROM tidemill.process"))
        migrating.start()
        wait_until(lambda: looker.execute(waits).scalar_one())
        looker.rollback()
        worker.execute(sa.text("INSERT INTO tidemill.job (task, queue) VALUES ('t', 'jobs')"))
        worker.commit()
        migrating.join(60)
    assert migrate.state(engine).current_is_wanted
    own.dispose()


def test_who_waits_behind_the_migration_is_not_ended_by_a_circle(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the table that was in use, and holds another one that the migration wants."""
    monkeypatch.setattr(migrate, "PAUSE_SECONDS", 0.01)
    # Nothing is held by then.
    monkeypatch.setattr(migrate, "LOCK_SECONDS", 60.0)
    engine = db.engine()
    upgrade_to(engine, "0011")
    own = new_engine(empty_database_url, pool_size=1)
    migrating = threading.Thread(target=migrate.migrate, args=(own,))
    waits = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'tidemill.job'::regclass")
    first = sa.text(
        "SELECT count(*) FROM pg_locks waiting WHERE NOT granted AND relation = 'tidemill.job'::regclass "
        "AND NOT EXISTS (SELECT FROM pg_locks held WHERE held.pid = waiting.pid AND held.granted AND mode ~ 'sExcl')"
    )

    def looked(query: Any) -> int:
        with engine.connect() as looker:
            return int(looker.execute(query).scalar_one())

    def produce() -> None:
        with engine.begin() as producer:
            producer.execute(sa.text("SELECT FROM tidemill.process"))
            producer.execute(sa.text("INSERT INTO tidemill.job (task, queue) VALUES ('t', 'jobs')"))
        ended.append("well")

    ended: list[str] = []
    producing = threading.Thread(target=produce)
    with engine.connect() as holder:
        holder.execute(sa.text("SELECT FROM tidemill.job"))
        migrating.start()
        wait_until(lambda: looked(first) == 1)
        producing.start()
        wait_until(lambda: looked(waits) == 2)
        # Just before Postgres looks.
        pause(0.75)
    producing.join(60)
    migrating.join(60)
    assert ended == ["well"]
    assert migrate.state(engine).current_is_wanted
    own.dispose()


def test_a_table_that_is_never_free_leaves_all_as_it_was(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch, tidemill: Tidemill
) -> None:
    monkeypatch.setattr(migrate, "LOCK_SECONDS", 0.01)
    monkeypatch.setattr(migrate, "ALL_SECONDS", 0.2)
    monkeypatch.setattr(migrate, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(migrate, "TRIES", 2)
    upgrade_to(db.engine(), "0011")
    with db.engine().connect() as holder:
        holder.execute(sa.text("SELECT FROM tidemill.job"))
        said = tidemill("migrate")
    assert said.code == 1
    assert one_sentence(said, "is as it was: in 2 tries", "the last time job", "pg_stat_activity")
    assert migrate.state(db.engine()).current == "0011"


# Old and new, the wrong way round


def test_this_release_knows_its_own_revision() -> None:
    assert schema.REVISION == HEAD
    assert all(len(each) == len(HEAD) and each.isdecimal() for each in REVISIONS)


def test_nobody_begins_on_the_schema_before(empty_database_url: str) -> None:
    """Also where nothing is missing that it would stumble over."""
    upgrade_to(db.engine(), BEFORE)
    with pytest.raises(NotMigrated, match=f"at revision {BEFORE}, .* needs {HEAD}: run 'tidemill migrate'"):
        registration.write(celery_app)
    migrate.migrate(db.engine())
    assert registration.write(celery_app)


def test_a_worker_knows_before_its_first_ticket(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ticket that was dropped because nobody had looked yet may be the only one that rings for a new process."""
    monkeypatch.setattr(Service, "_run", lambda *_: None)
    parent: Any = SimpleNamespace(pool_cls=TaskPool)
    held = []
    for revision in (BEFORE, HEAD):
        upgrade_to(db.engine(), revision)
        service = Service(parent)
        service.start(parent)
        held.append(stopping.is_held())
        service.stop(parent)
    assert held == [True, False]


@pytest.mark.parametrize("revision", ["0001", "0004", "0011"])
def test_who_meets_an_older_schema_says_so(empty_database_url: str, revision: str, tidemill: Tidemill) -> None:
    """A table, a function or a column that is missing: it is one sentence for the operator."""
    upgrade_to(db.engine(), revision)
    with pytest.raises(NotMigrated, match="run 'tidemill migrate'"):
        enqueue(noop.s())
    for words in ("migrate --check", "job list"):
        said = tidemill(words)
        assert said.code == 1
        assert one_sentence(said, "run 'tidemill migrate'"), (words, said)


def test_a_later_schema_is_worked_on_and_not_migrated(empty_database_url: str, tidemill: Tidemill) -> None:
    """That is how a rolling upgrade looks to those who are not replaced yet."""
    migrate.migrate(db.engine())
    with db.engine().begin() as connection:
        connection.execute(sa.text("UPDATE tidemill.alembic_version SET version_num = '9999'"))
    assert registration.write(celery_app)
    for words in ("migrate", "migrate --check"):
        assert one_sentence(tidemill(words), "at revision 9999, which is later than"), words
    said = next(each for each in tidemill("doctor --json").data["findings"] if each["check"] == "schema")
    assert (said["level"], "9999" in said["detail"]) == ("warn", True)
