"""Statements that the server keeps planned: what happens when it does not keep them, or plans them badly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError

from app import db, prepared
from app.db import autocommit
from app.prepared import Prepared


@pytest.fixture
def statement(engine: Engine) -> Iterator[Prepared]:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE public.thing (id bigint, name text)")
        connection.exec_driver_sql("INSERT INTO public.thing VALUES (1, 'one'), (2, '100%%')")
    table = sa.Table(
        "thing", sa.MetaData(), sa.Column("id", sa.BigInteger), sa.Column("name", sa.Text), schema="public"
    )
    wanted = sa.select(table.c.id, table.c.name).where(table.c.id == sa.bindparam("p_id", type_=sa.BigInteger))
    yield Prepared("thing", wanted.where(table.c.name.like("%") | table.c.name.is_(None)))
    Prepared.usable = True
    db.dispose()


def _names() -> list[str]:
    with autocommit() as connection:
        return list(connection.exec_driver_sql("SELECT name FROM pg_prepared_statements").scalars())


def _ask(statement: Prepared, key: int) -> list[tuple[int, str]]:
    with autocommit() as connection:
        return [tuple(row) for row in statement.execute(connection, {"p_id": key})]


def test_it_is_prepared_once_a_connection(statement: Prepared) -> None:
    assert _names() == []
    assert _ask(statement, 1) == [(1, "one")]
    assert _ask(statement, 2) == [(2, "100%")]
    assert _names() == ["tidemill_thing"]
    db.dispose()
    assert _ask(statement, 1) == [(1, "one")], "a new connection knows no names"


def test_where_names_vanish_the_plain_statement_serves(statement: Prepared, caplog: pytest.LogCaptureFixture) -> None:
    """As behind a pooler that changes the server under a connection."""
    _ask(statement, 1)
    with autocommit() as connection:
        connection.exec_driver_sql("DEALLOCATE ALL")
    assert _ask(statement, 1) == [(1, "one")]
    assert not Prepared.usable
    assert "a pooler?" in caplog.text
    assert _ask(statement, 2) == [(2, "100%")]
    assert _names() == []


def test_what_a_migration_has_changed_is_prepared_anew(statement: Prepared, engine: Engine) -> None:
    _ask(statement, 1)
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE public.thing ALTER name TYPE varchar(50)")
    assert _ask(statement, 1) == [(1, "one")]
    assert Prepared.usable
    assert _ask(statement, 2) == [(2, "100%")]


def test_other_errors_are_those_of_the_statement(statement: Prepared, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE public.thing")
    with pytest.raises(DBAPIError, match="thing"):
        _ask(statement, 1)
    assert Prepared.usable


@pytest.mark.parametrize("limit", ["SLOW_SECONDS", "OLD_SECONDS"])
def test_what_is_slow_or_old_is_planned_anew(statement: Prepared, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _ask(statement, 1)
    prepared_at = "SELECT extract(epoch FROM prepare_time) FROM pg_prepared_statements"
    with autocommit() as connection:
        before = connection.exec_driver_sql(prepared_at).scalar_one()
    monkeypatch.setattr(prepared, limit, -1.0)
    monkeypatch.setattr(prepared, "SLOW_AGE_SECONDS", -1.0)
    _ask(statement, 1)
    _ask(statement, 1)
    monkeypatch.undo()
    _ask(statement, 1)
    with autocommit() as connection:
        assert connection.exec_driver_sql(prepared_at).scalar_one() > before
