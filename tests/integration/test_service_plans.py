"""What the service asks many times a second is read by index, however much it has followed before."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app import db
from app.db import autocommit, transaction
from tests.kit.plans import Statement, captured, explain
from triggers import Delta
from triggers.service import Service, cursor
from triggers.service.memory import Memory

ROWS, TASKS = 1_000_000, 20_000
#: Old rows: in the table's own order, by transactions that are long over.
FILL = """
INSERT INTO tidemill.ctl_change (entity, parameter, value, xid)
SELECT 'e' || i % 1000, 'p', now(), cast(greatest(3, 700 - (:rows - i) / 2000)::text AS xid8)
FROM generate_series(1, :rows) AS i;
INSERT INTO tidemill.reactive_event (task, xid)
SELECT 't', cast(greatest(3, 700 - (:events - i) / 2000)::text AS xid8) FROM generate_series(1, :events) AS i;
INSERT INTO tidemill.ctl (entity, parameter, value) SELECT 'e' || i, 'p', now() FROM generate_series(1, :tasks) AS i;
INSERT INTO tidemill.reactive_task (name, module, pool, priority, trigger, shape, produces, first_run, on_lapse,
    max_failures, backoff, code)
SELECT 't' || i, 'm', 'default', 0, jsonb_set(cast(:trigger AS jsonb), '{entity}', to_jsonb('e' || i)), '{}', '[]',
    'fire', 'drop', 5, '5s', 'c'
FROM generate_series(1, :tasks) AS i;
INSERT INTO tidemill.reactive_leaf (task_id, position, entity, parameter, latched)
SELECT id, 0, 'e' || substr(name, 2), 'p', true FROM tidemill.reactive_task;
INSERT INTO tidemill.ctl_seen (task, entity, parameter, value)
SELECT 't' || i, 'e' || i, 'p', now() FROM generate_series(1, :tasks) AS i
"""
BIG = {"ctl_change", "reactive_event", "ctl", "reactive_task", "reactive_leaf", "ctl_seen"}


@pytest.fixture
def big(database_url: str) -> Engine:
    with db.engine().begin() as connection:
        trigger = json.dumps(Delta("-", "p", "1d").to_json())
        words = {"rows": ROWS, "events": ROWS // 10, "tasks": TASKS, "trigger": trigger}
        for each in FILL.split(";"):
            bound = {name: value for name, value in words.items() if f":{name}" in each}
            connection.execute(sa.text(each).bindparams(**bound))
    with db.engine().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    with transaction() as session:
        cursor.take_over(session)
    return db.engine()


@pytest.mark.parametrize("long_writer", [False, True])
def test_the_streams_are_read_by_transaction(big: Engine, long_writer: bool) -> None:  # noqa: FBT001
    # T18, T19: also while somebody else has written for long, and much was committed meanwhile.
    with big.connect() as writer:
        if long_writer:
            writer.execute(sa.text("SELECT tidemill.advance('long', 'p', '2026-01-01Z')"))
            with transaction() as session:
                cursor.take_over(session)
        with captured(big) as asked:
            with autocommit() as connection:
                assert not cursor.anything_new(connection, 2 if long_writer else 1, None)
            with transaction() as session:
                changes = cursor.read(session, cursor.lock(session).snapshot)
        assert changes.parameters == {}
        peek, read = asked[0], asked[-1]
        for each in (peek, read):
            plan = explain(big, each, analyze=True)
            assert plan.read_whole().isdisjoint(BIG), each.text
            assert {"ctl_change_xid", "reactive_event_xid"} <= plan.indexes()
            assert plan.pages < 60, plan.pages
        writer.rollback()


def test_a_task_is_read_again_by_index(big: Engine) -> None:
    # T18: at every end of a run.
    with captured(big) as asked, transaction() as session:
        Memory(0).load(session, {"t5", "t17", "t300"})
    statements = [Statement(_plain(each.text), each.parameters) for each in asked if "reactive_task" in each.text]
    assert len(statements) == 2
    for each in statements:
        plan = explain(big, each, analyze=True)
        assert plan.read_whole().isdisjoint(BIG), plan.root
        assert plan.pages < 100, plan.pages


def test_an_idle_service_asks_one_question(big: Engine) -> None:
    still = Service(lambda: 1000.0)
    for _ in range(3):
        still.run_once()
    with captured(big) as asked:
        still.run_once()
    assert len(asked) == 1, [each.text for each in asked]


def _plain(text: str) -> str:
    return text.partition(" FOR ")[2] if text.startswith("DECLARE") else text
