"""Programs in any language advance parameters with `tidemill.advance`, by the same rules; all changes are recorded."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.cli import grants
from app.errors import MovesBack
from tests.kit.database import Databases
from triggers import ctl

T = datetime(2026, 7, 1, tzinfo=UTC)


def run(session: Session, statement: str, **values: Any) -> Any:
    """The one value of its result, committed."""
    found = session.execute(sa.text(statement), values).scalar_one()
    session.commit()
    return found


def advance(session: Session, moment: str, name: str = "'dds.orders', 'loaded_to'") -> Any:
    return run(session, f"SELECT tidemill.advance({name}, {moment})")


def change(session: Session, statement: str, **values: Any) -> None:
    session.execute(sa.text(statement), values)
    session.commit()


def test_advance_says_whether_it_moved(session: Session) -> None:
    # T15
    assert advance(session, "'2026-07-01Z'") is True
    assert advance(session, "'2026-07-01 03:00+03'") is False
    assert advance(session, "'2026-07-02Z'") is True
    assert [each.value.day for each in ctl.history("dds.orders", "loaded_to")] == [2, 1]


def test_advance_many_returns_what_moved(session: Session) -> None:
    ctl.advance("a", p=T)
    statement = "SELECT * FROM tidemill.advance_many('{b,a,c}', '{p,p,p}', '{2026-07-01Z,2026-07-01Z,2026-07-01Z}')"
    assert [tuple(row) for row in session.execute(sa.text(statement))] == [("b", "p", T), ("c", "p", T)]


def test_a_parameter_given_twice_gets_the_greater_value(session: Session) -> None:
    for times in ("{2026-07-02Z,2026-07-01Z}", "{2026-07-02Z,2026-07-03Z}"):
        run(session, "SELECT count(*) FROM tidemill.advance_many('{a,a}', '{p,p}', :times)", times=times)
    assert [each.value.day for each in ctl.history("a", "p")] == [3, 2]


@pytest.mark.parametrize(
    ("moment", "code", "said"),
    [
        ("'2026-06-30Z'", "TMBCK", "dds.orders.loaded_to is at 2026-07-01 .* cannot be advanced back to 2026-06-30"),
        ("'infinity'", "TMFAR", "cannot be advanced to infinity: that is more than 10 years ahead"),
        ("'9999-01-01Z'", "TMFAR", "more than 10 years ahead"),
        ("now() + interval '11 years'", "TMFAR", "more than 10 years ahead"),
        ("'-infinity'", "22023", "cannot be advanced to -infinity: that is before the year 2"),
        ("'0001-12-31Z'", "22023", "before the year 2"),
        ("null", "22023", "and the value a moment"),
        ("'soon'", "22007", "invalid input syntax for type timestamp"),
    ],
)
def test_what_is_no_value_is_refused(session: Session, moment: str, code: str, said: str) -> None:
    # T15
    ctl.advance("dds.orders", loaded_to=T)
    with pytest.raises(sa.exc.DBAPIError, match=said) as refused:
        advance(session, moment)
    assert getattr(refused.value.orig, "pgcode", None) == code
    session.rollback()
    assert ctl.get("dds.orders", "loaded_to") == T


@pytest.mark.parametrize(
    "name", ["null", "''", "'  '", "repeat('x', 201)", "repeat('x', 1000000)", r"E'a\nb'", r"E'a\x7fb'", r"U&'a\0085b'"]
)
def test_what_is_no_name_is_refused(session: Session, name: str) -> None:
    for names in (f"{name}, 'p'", f"'e', {name}"):
        with pytest.raises(sa.exc.DBAPIError, match="must be 1 to 200 characters") as refused:
            advance(session, "'2026-07-01Z'", names)
        assert len(str(refused.value.orig)) < 1500
        session.rollback()
    assert ctl.values() == []


def test_a_nul_is_no_text_at_all(session: Session) -> None:
    with pytest.raises(sa.exc.DBAPIError, match="null character not permitted"):
        advance(session, "'2026-07-01Z'", "'a' || chr(0), 'p'")


@pytest.mark.parametrize("name", ["repeat('x', 200)", "'Заказы'", r"U&'a\00a0b'", "'a*b'"])
def test_what_sql_takes_python_reads(session: Session, name: str) -> None:
    assert advance(session, "'2026-07-01Z'", f"{name}, 'p'") is True
    [found] = ctl.values()
    assert ctl.get(found.entity, "p") == T
    assert ctl.advance(found.entity, p=T) == set()


@pytest.mark.parametrize(
    "arrays", [("{a}", "{p}", "{}"), ("{a}", "{p,q}", "{now}"), (None, None, None), ("{}", None, "{}")]
)
def test_arrays_that_do_not_fit_are_refused(session: Session, arrays: tuple[str | None, ...]) -> None:
    statement = "SELECT count(*) FROM tidemill.advance_many(:entities, :parameters, :moments)"
    with pytest.raises(sa.exc.DBAPIError, match="takes three arrays of one length"):
        run(session, statement, **dict(zip(("entities", "parameters", "moments"), arrays, strict=True)))


def test_a_refusal_can_be_undone_by_a_savepoint(session: Session) -> None:
    ctl.advance("a", p=T)
    session.execute(sa.text("SELECT tidemill.advance('b', 'p', '2026-07-01Z')"))
    with pytest.raises(sa.exc.DBAPIError, match="cannot be advanced back"), session.begin_nested():
        session.execute(sa.text("SELECT tidemill.advance('a', 'p', '2026-06-30Z')"))
    session.commit()
    assert [each.entity for each in ctl.values()] == ["a", "b"]


def test_in_a_snapshot_that_is_too_old_it_fails_and_never_moves_back(engine: Engine, session: Session) -> None:
    session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
    assert session.execute(sa.text("SELECT count(*) FROM tidemill.ctl")).scalar_one() == 0
    ctl.advance("dds.orders", loaded_to=T)
    with pytest.raises(sa.exc.OperationalError, match="could not serialize access"):
        advance(session, "'2026-06-30Z'")


# Plain SQL, past the functions


def test_plain_sql_is_recorded_too(session: Session) -> None:
    change(session, "INSERT INTO tidemill.ctl (entity, parameter, value) VALUES ('a', 'p', '2026-07-01Z')")
    change(session, "UPDATE tidemill.ctl SET value = '2026-07-02Z'")
    change(session, "UPDATE tidemill.ctl SET value = value")
    xid = session.execute(sa.text("SELECT pg_current_xact_id()::text::bigint")).scalar_one()
    change(session, "UPDATE tidemill.ctl SET value = '2026-06-30Z'")
    back, forward, first = ctl.history("a", "p")
    assert (first.value.day, first.previous, first.restated) == (1, None, False)
    assert (forward.value.day, forward.previous, forward.restated) == (2, T, False)
    assert (back.value.day, back.restated, back.xid) == (30, True, xid)
    [value] = ctl.of("a")
    assert (value.version, value.epoch) == (3, 1)
    assert value.changed_at > first.changed_at


def test_a_parameter_is_not_renamed(session: Session) -> None:
    ctl.advance("a", p=T)
    with pytest.raises(sa.exc.DBAPIError, match=r"a\.p cannot be renamed to b\.p"):
        change(session, "UPDATE tidemill.ctl SET entity = 'b'")


@pytest.mark.parametrize("value", ["infinity", "-infinity", "0001-12-31Z", "9998-12-31 00:00:01Z", "9999-01-01Z"])
def test_the_database_refuses_a_value_that_python_cannot_read(session: Session, value: str) -> None:
    ctl.advance("a", p=T)
    with pytest.raises(sa.exc.IntegrityError, match="ctl_value_within_years"):
        change(session, "UPDATE tidemill.ctl SET value = :value", value=value)
    session.rollback()
    ctl.restate("a", p=ctl.LAST, reason="the very last")
    ctl.restate("a", p=ctl.FIRST, reason="the very first")


# Rights: a role that may only call the functions


@pytest.fixture
def producer(engine: Engine, databases: Databases) -> Iterator[Session]:
    name = f"advances_{engine.url.database}"
    with databases.admin.connect() as admin:
        admin.exec_driver_sql(f"CREATE ROLE {name} LOGIN PASSWORD 'p'")
    grants.grant_producer(engine, name)
    theirs = sa.create_engine(engine.url.set(username=name, password="p"), poolclass=sa.NullPool)
    with Session(theirs) as found:
        yield found
    inside = sa.create_engine(databases.admin.url.set(database=engine.url.database), poolclass=sa.NullPool)
    with inside.begin() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {name}")
    with databases.admin.connect() as admin:
        admin.exec_driver_sql(f"DROP ROLE {name}")


def test_a_producer_may_advance_in_sql_and_in_python(producer: Session) -> None:
    # T15
    assert advance(producer, "'2026-07-01Z'") is True
    assert ctl.advance("dds.orders", session=producer, loaded_to=T + timedelta(days=1)) == {"loaded_to"}
    with pytest.raises(MovesBack):
        ctl.advance("dds.orders", session=producer, loaded_to=T)
    producer.commit()
    assert len(ctl.history("dds.orders", "loaded_to")) == 2


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM tidemill.ctl",
        "INSERT INTO tidemill.ctl (entity, parameter, value) VALUES ('a', 'p', now())",
        "UPDATE tidemill.ctl SET value = now()",
        "DELETE FROM tidemill.ctl",
        "SELECT * FROM tidemill.ctl_change",
        "INSERT INTO tidemill.ctl_change (entity, parameter, value) VALUES ('a', 'p', now())",
        "SELECT * FROM tidemill.audit",
    ],
)
def test_and_nothing_else(producer: Session, statement: str) -> None:
    with pytest.raises(sa.exc.ProgrammingError, match="permission denied"):
        producer.execute(sa.text(statement))


def test_not_everybody_may_call_them(session: Session) -> None:
    query = sa.text(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'tidemill'::regnamespace "
        "AND has_function_privilege('public', oid, 'EXECUTE')"
    )
    assert session.execute(query).all() == []


def test_objects_of_the_caller_do_not_get_between(producer: Session) -> None:
    producer.execute(sa.text("CREATE TEMP TABLE ctl (entity text, parameter text, value timestamptz)"))
    producer.execute(sa.text("SET search_path = pg_temp, public"))
    assert advance(producer, "'2026-07-01Z'") is True
    assert ctl.get("dds.orders", "loaded_to") == T
