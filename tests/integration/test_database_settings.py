"""A database or a role for which somebody has set something else than Postgres has by itself."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from app import db
from app.db import autocommit, transaction
from app.jobs import schedules
from app.jobs.model import Job, PeriodicJob
from app.migrate import migrate
from tests.integration.test_migrations import CATALOGS, catalog
from tests.kit.cli import Tidemill, tidemill
from tests.kit.database import Databases
from tests.kit.tasks import noop, sleep_for
from tidemill import ctl, enqueue, periodic

__all__ = ["tidemill"]
IDS = """
SELECT tidemill.entity_id(jsonb_build_object('a', 'p' || chr(92) || 'q', 'b', 'x/y'), array['a', 'b']),
       tidemill.entity_id(jsonb_build_object('a', 'p' || chr(92) || 'q'), array['a']),
       tidemill.entity_key(array['a', 'b'])
"""
FUNCTIONS = sa.text("SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'tidemill'::regnamespace")
SPAN = timedelta(days=400, hours=3, seconds=7.5)


@pytest.fixture
def set_to(database_url: str) -> Iterator[None]:
    """For one test: it is set back, since the database is lent."""
    yield
    _alter("RESET ALL")
    db.dispose()


def _alter(words: str) -> None:
    with autocommit() as connection:
        name = connection.execute(sa.select(sa.func.current_database())).scalar_one()
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" {words}')


def _set(name: str, value: str) -> None:
    _alter(f"SET {name} = '{value}'")
    db.dispose()


@pytest.mark.usefixtures("set_to")
@pytest.mark.parametrize("style", ["iso_8601", "sql_standard", "postgres_verbose"])
def test_spans_are_read_whatever_the_style(style: str, tidemill: Tidemill) -> None:
    periodic(noop.s(), every=SPAN, name="seldom")
    _set("intervalstyle", style)
    with transaction() as session:
        assert session.get_one(PeriodicJob, "seldom").every == SPAN
        assert session.scalar(sa.select(sa.literal(-SPAN, sa.Interval))) == -SPAN
    assert tidemill("job periodic --json").data["periodic"][0]["every"] == SPAN.total_seconds()
    before = _next()
    schedules.run_once()
    assert _next() - before == SPAN


def _next() -> datetime:
    with transaction() as session:
        return session.get_one(PeriodicJob, "seldom").next_at


@pytest.mark.usefixtures("set_to")
@pytest.mark.parametrize(
    ("zone", "style"),
    [("Asia/Kathmandu", "SQL, DMY"), ("Pacific/Kiritimati", "German"), ("America/Caracas", "Postgres, MDY")],
)
def test_moments_are_the_same_in_every_zone_and_style(zone: str, style: str) -> None:
    at = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
    _set("timezone", zone)
    _set("datestyle", style)
    ctl.advance("a", b=at)
    assert ctl.get("a", "b") == at


@pytest.mark.usefixtures("set_to")
@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
def test_transactions_are_read_committed_unless_one_is_asked_for(level: str) -> None:
    """By the rules for others, who meets a lock fails with a serialization failure: no claim could be made."""
    _set("default_transaction_isolation", level)
    shown = sa.text("SHOW transaction_isolation")
    for _ in range(2):
        with transaction() as session:
            assert session.scalar(shown) == "read committed"
        with Session(db.engine().execution_options(isolation_level="REPEATABLE READ")) as other:
            assert other.scalar(shown) == "repeatable read"


@pytest.mark.usefixtures("set_to")
def test_numbers_and_texts_are_what_was_written() -> None:
    _set("extra_float_digits", "-5")
    _set("standard_conforming_strings", "off")
    _set("bytea_output", "escape")
    number, text, octets = 0.1 + 0.2, r"a\b'c\n", b"\x00\\\xff'"
    with transaction() as session:
        assert session.scalar(sa.select(sa.cast(number, sa.Double))) == number
        assert session.scalar(sa.select(sa.literal(text))) == text
        assert session.scalar(sa.select(sa.literal(octets, sa.LargeBinary) == octets))
        assert bytes(session.execute(sa.select(sa.literal(octets, sa.LargeBinary))).scalar_one()) == octets
        name = enqueue(sleep_for.s(number, text), session=session, key=text)
        assert session.scalar(sa.select(sa.cast(Job.args, sa.Text)).where(Job.key == text, Job.id == name))
    ctl.advance(text, b=datetime(2026, 2, 3, tzinfo=UTC))
    assert ctl.get(text, "b")


def test_ids_of_entities_are_the_same_however_strings_are_written(session: Session) -> None:
    """In the triggers of watched tables, so in the sessions of whoever writes them."""
    found = []
    for word in ("on", "off"):
        session.execute(sa.select(sa.func.set_config("standard_conforming_strings", word, False)))
        ids = session.execute(sa.text(IDS)).one()
        columns = sa.select(sa.literal("1/2").label("a"), sa.func.chr(92).label("b")).subquery()
        key: str = session.execute(sa.select(sa.literal_column(ids[2])).select_from(columns)).scalar_one()
        found.append((*ids, key))
    assert found[0] == found[1]
    assert (found[0][0], found[0][1], found[0][3]) == (r"p\\q/x\/y", r"p\q", r"1\/2/\\")


def test_what_the_url_says_for_the_connection_holds(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(url: str, options: str = "") -> tuple[str, ...]:
        engine = db.new_engine(url, pool_size=1, options=options)
        names = ("default_transaction_read_only", "statement_timeout", "application_name")
        with engine.connect() as connection:
            found = tuple(str(connection.exec_driver_sql(f"SHOW {name}").scalar_one()) for name in names)
        engine.dispose()
        return found

    own = "options=-c%20default_transaction_read_only%3Don%20-c%20statement_timeout%3D5s&application_name=mine"
    together = f"{database_url}{'&' if '?' in database_url else '?'}{own}"
    assert said(database_url) == ("off", "0", "tidemill")
    assert said(together) == ("on", "5s", "mine")
    assert said(together, "-c statement_timeout=7s") == ("on", "7s", "mine")
    monkeypatch.setenv("PGOPTIONS", "-c statement_timeout=9s")
    assert said(database_url) == ("off", "9s", "tidemill")


def test_a_database_becomes_the_same_however_strings_are_written(empty_database_url: str, databases: Databases) -> None:
    url = databases.empty()
    usual, odd = db.engine(), db.new_engine(url, pool_size=1)
    alter = f'ALTER DATABASE "{make_url(url).database}"'
    with databases.admin.connect() as admin:
        admin.exec_driver_sql(f"{alter} SET standard_conforming_strings = off")
        for each in (usual, odd):
            migrate(each)
        # Postgres also shows a text in the way that is set.
        admin.exec_driver_sql(f"{alter} RESET ALL")
    odd.dispose()
    for query in (*CATALOGS.values(), FUNCTIONS):
        assert catalog(odd, query) == catalog(usual, query)
    odd.dispose()
    databases.drop(url)
