"""The fingerprint that Postgres makes of a broken task is what the code says of its message; and the groups of them."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.errors import BadRequest, NotFound
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
