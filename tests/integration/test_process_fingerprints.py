"""The fingerprint that Postgres makes of a broken task is what the code says of its message; and the groups of them."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.errors import BadRequest, NotFound
from processes.answers import MESSAGE_LIMIT
from processes.errors import Group, groups
from processes.fingerprint import FORM, fingerprint_sql, kind_of
from processes.model import BROKEN_TASK, PROCESS

#: Of what the patterns look at, and around it.
PIECES = (
    "'",
    '"',
    "a",
    "Zz_",
    "deadbeef",
    "0x7f",
    "17",
    "-",
    "--------",
    ".",
    ":",
    ",",
    " ",
    "\n",
    "#, ",
    "Failing row contains (",
    "Key (",
    ")=(",
    "\n[SQL: ",
    "\n[parameters: ",
    "%(a)s",
    "é",
    "٣",
    "\\",
    "#",
)
MESSAGES = st.one_of(st.lists(st.sampled_from(PIECES), max_size=20).map("".join), st.text(max_size=400)).filter(
    lambda text: "\x00" not in text and not any("\ud800" <= each <= "\udfff" for each in text)
)
BOTH = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@BOTH
@given(MESSAGES, MESSAGES)
@example("x" * 290 + " 'cut here, in the middle of it'", "A")
@example("-deadbeef'" * 40, "A")
@example("DETAIL:  Failing row contains (1, 'it\n(, null).\n\n[SQL: INSERT (a) VALUES (%(a)s)]\n[parameters: {}]", "A")
@example("Key (a, b)=(1, ))=( x) is there.\nCONTEXT: 1, 2,#, '", "A")
def test_postgres_and_the_code_agree(engine: Engine, message: str, kind: str) -> None:
    # R10
    row = sa.select(
        sa.literal(kind).label("actor"), sa.literal(kind).label("type"), sa.literal(message).label("message")
    )
    with engine.connect() as connection:
        made: Any = sa.literal_column(fingerprint_sql())
        found = connection.execute(sa.select(made).select_from(row.subquery()))
        told = "\n".join((kind, kind, kind_of(message)))
        wanted = hashlib.md5(told.encode(), usedforsecurity=False).hexdigest()[:16]
        assert found.scalar_one() == wanted
        assert FORM.fullmatch(wanted)


PAID = sa.Table(
    "paid",
    sa.MetaData(),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("at", sa.TIMESTAMP(timezone=True)),
    sa.Column("about", sa.Text),
    sa.Column("amount", sa.Numeric, sa.CheckConstraint("amount < 100", "closed")),
    sa.Column("of", sa.Text, sa.ForeignKey("paid.key")),
)
AT = datetime(2026, 11, 20, 5, 3, tzinfo=UTC)
ROW = {"key": "charge:o-1", "at": AT, "about": "", "amount": 100, "of": None}
OTHERS = (
    {"at": AT + timedelta(seconds=2)},
    {"at": AT + timedelta(microseconds=100_000)},
    {"at": None},
    {"amount": Decimal("12345.67")},
    {"key": "c" * 200, "about": "longer than what Postgres shows, " * 9},
    {"key": "o" * 60, "about": "longer than what is kept, " * 99},
    {"about": "o'Brien said: 'no (and\n\"never\" again), "},
    {"of": "another"},
)


@pytest.fixture
def paid(session: Session) -> Session:
    PAID.create(session.connection())
    session.execute(sa.insert(PAID).values(key="first", amount=1))
    return session


def _refused(session: Session, statement: Any, *rows: dict[str, Any], hidden: bool = True) -> str:
    """The message, as it is kept of a broken task. `hidden`: by `transaction()`, which tells no parameters."""
    with pytest.raises(sa.exc.StatementError) as error, session.begin_nested():
        session.execute(statement, list(rows) or None)
    error.value.hide_parameters = hidden
    return str(error.value)[:MESSAGE_LIMIT]


@pytest.mark.parametrize("hidden", [True, False], ids=["hidden", "shown"])
def test_rows_that_break_one_rule_are_one_failure(paid: Session, *, hidden: bool) -> None:
    # R10
    messages = [_refused(paid, sa.insert(PAID), ROW | other, hidden=hidden) for other in ({}, *OTHERS)]
    assert all("Failing row contains (" in each and ("[parameters: " in each) != hidden for each in messages)
    assert len(set(messages)) == len(messages)
    assert {kind_of(each) for each in messages} == {kind_of(messages[0])}


def test_many_rows_in_one_statement_are_one_failure(paid: Session) -> None:
    # R10
    rows = [ROW | {"key": f"o-{number}"} for number in range(30)]
    statements = [sa.insert(PAID).values(rows[:many]) for many in (2, 3, 30)]
    messages = [_refused(paid, each, hidden=False) for each in statements]
    assert len(messages[0]) < len(messages[2]) == MESSAGE_LIMIT
    assert len({kind_of(each) for each in messages}) == 1


def test_keys_that_are_there_or_are_not_are_one_failure_each(paid: Session) -> None:
    # R10
    keys = ("a b", "it's (in)", "17", "x" * 500)
    paid.execute(sa.insert(PAID), [{"key": key, "amount": 1} for key in keys])
    row = {**ROW, "amount": 1}
    twice = {kind_of(_refused(paid, sa.insert(PAID), row | {"key": key})) for key in keys}
    nobody = {kind_of(_refused(paid, sa.insert(PAID), row | {"key": f"new {key}", "of": f"no {key}"})) for key in keys}
    assert len(twice) == len(nobody) == 1
    assert twice != nobody


def test_what_the_database_refuses_for_other_reasons_is_another_failure(paid: Session) -> None:
    # R10
    statements = (
        (sa.insert(PAID), ROW),
        (sa.update(PAID), {"amount": 100}),
        (sa.insert(PAID), ROW | {"key": None}),
        (sa.insert(PAID), ROW | {"amount": 1, "of": "another"}),
        (sa.insert(PAID), ROW | {"amount": "much"}),
        (sa.text("insert into paid (price) values (:price)"), {"price": 1}),
        (sa.text("insert into unpaid (price) values (:price)"), {"price": 1}),
    )
    messages = [_refused(paid, statement, row) for statement, row in statements]
    assert len({kind_of(each) for each in messages}) == len(messages), messages


NOW = datetime.now(UTC)


def _break(session: Session, name: str, actor: str, *messages: str, kind: str = "KeyError", ago: int = 0) -> list[int]:
    """A process each; its first task."""
    found: list[int] = []
    for message in messages:
        process: dict[str, Any] = {"name": name, "state": "BROKEN", "arguments": {}}
        process_id = session.execute(sa.insert(PROCESS).values(process).returning(PROCESS.c.id)).scalar_one()
        words = {"process_id": process_id, "number": 1, "actor": actor, "type": kind, "message": message}
        session.execute(sa.insert(BROKEN_TASK).values(words | {"at": NOW - timedelta(hours=ago, seconds=-len(found))}))
        found.append(process_id)
    return found


@pytest.fixture
def broken(session: Session) -> list[int]:
    for name, decider in (("charge", False), ("label", False), ("fulfil", True), ("refund", True)):
        session.execute(
            sa.text(
                "INSERT INTO tidemill.actor_preferences (name, decider, outside, module, task, accept_first,"
                " work_timeout, restart_after_work_timeout, max_restarts, force_finish_after_task_timeout, retry,"
                " fail_types, idle_process_timeout, retention, when_inconsistent, declared)"
                " VALUES (:name, :decider, false, 'm', 't', true, '1 min', true, 3, false, '{}', '{}', '1 min', '1 d',"
                " 'mark', '{}')"
            ),
            {"name": name, "decider": decider},
        )
    first = _break(session, "fulfil", "charge", "no order 'o-1' for 17", "no order 'x' for 3f9c01aa-11d4", ago=5)
    _break(session, "fulfil", "label", "no order 'o-1' for 17", ago=3)
    _break(session, "refund", "charge", "no order 'o-9' for 0x7f", kind="KeyError", ago=1)
    _break(session, "refund", "charge", "no order 'o-9' for 0x7f", kind="IndexError", ago=1)
    return first


def test_the_same_failure_with_other_ids_is_one_group(session: Session, broken: list[int]) -> None:
    # R10
    found = groups(session)
    assert (found[0].count, found[0].actor, found[0].type) == (3, "charge", "KeyError")
    assert sorted((each.count, each.actor, each.type) for each in found[1:]) == [
        (1, "charge", "IndexError"),
        (1, "label", "KeyError"),
    ]
    assert (found[0].first_at, found[0].last_at) == (NOW - timedelta(hours=5), NOW - timedelta(hours=1))
    assert found[0].example.message == "no order 'o-9' for 0x7f"
    assert len({each.fingerprint for each in found}) == 3


def test_groups_by_time_type_and_actor(session: Session, broken: list[int]) -> None:
    def told(**words: Any) -> list[tuple[int, str, str]]:
        return sorted((each.count, each.actor, each.type) for each in groups(session, **words))

    assert told(since=NOW - timedelta(hours=2)) == [(1, "charge", "IndexError"), (1, "charge", "KeyError")]
    assert told(name="fulfil") == [(1, "label", "KeyError"), (2, "charge", "KeyError")]
    assert told(actor="label") == [(1, "label", "KeyError")]
    assert told(actor="label", name="refund") == []
    latest: Group = groups(session, name="fulfil")[0]
    assert latest.example.process_id == broken[-1]
    assert len(groups(session, limit=1)) == 1
    with pytest.raises(BadRequest, match="limit=0"):
        groups(session, limit=0)
    with pytest.raises(NotFound, match="did you mean charge"):
        groups(session, actor="charg")
