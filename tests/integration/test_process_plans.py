"""What it reads to accept a hundred answers grows with the hundred, and not with how many processes there are; with
statistics of the tables, and before there are any."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from processes import loading, start
from processes.accepting import accept
from processes.answers import Answer, Handed, Take, Value
from processes.flow import Planned
from processes.statements import locking
from processes.states import ProcessState
from processes.working import saving
from recovery import decisions
from tests.kit import process_rows as r
from tests.kit import process_world as w
from tests.kit.plans import Statement, captured, explain_prepared

BATCH, FEW, MANY = 100, 1_000, 20_000
#: A level more of an index, for each of its probes; a table that is read from end to end would be twenty times.
GROWTH = 2.0
PASS = uuid.uuid4()
#: Of each process, the first task is the decider's, the next two are in work, the last waits for both of them.
FILL = """
INSERT INTO tidemill.process (id, name, state, arguments, begun_at)
SELECT i, 'sell', 'ACTIVE', '{"args": [], "kwargs": {}}', now() FROM generate_series(1, %(rows)s) i;
INSERT INTO tidemill.graph (process_id, tasks, unfinished, recovery_time)
SELECT i, 4, 4, now() + interval '1 h' FROM generate_series(1, %(rows)s) i;
INSERT INTO tidemill.task (process_id, number, actor, state, pending, value_of, arguments, uses)
SELECT i, n, 'sell', cast(state AS tidemill.task_state), pending, value_of, '{"args": [], "kwargs": {}}', uses
FROM generate_series(1, %(rows)s) i,
    (VALUES (1, 'FOLLOWS', 0, 4, NULL), (2, 'READY', 0, NULL, NULL), (3, 'READY', 0, NULL, NULL),
        (4, 'PENDING', 2, NULL, ARRAY[2, 3])) t (n, state, pending, value_of, uses);
INSERT INTO tidemill.edge (process_id, source, target, value)
SELECT i, source, target, target = 1
FROM generate_series(1, %(rows)s) i, (VALUES (4, 1), (2, 4), (3, 4)) e (source, target);
INSERT INTO tidemill.decision (process_id, number, queue, state, pass_key, recovery_time)
SELECT i, n, 'actor.sell', 'WORK', %(pass_key)s, now() + interval '1 h'
FROM generate_series(1, %(rows)s) i, generate_series(2, 3) n;
"""
TABLES = "tidemill.process, tidemill.graph, tidemill.task, tidemill.edge, tidemill.decision"


def _fill(engine: Engine, rows: int, *, known: bool) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(f"TRUNCATE {TABLES}")
        connection.exec_driver_sql(FILL, {"rows": rows, "pass_key": str(PASS)})
    if known:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"VACUUM ANALYZE {TABLES}")


def _answer() -> None:
    """In the middle of all of them, so that no order of reading comes by them at first."""
    keys = [(500 + i, 2 + i % 2) for i in range(BATCH)]
    with saving() as connection:
        loading.load(connection, [(process_id, 4) for process_id, _ in keys])
        accept(connection, [Answer(Handed(*key, 0, PASS), Value("1")) for key in keys])


def _pages(engine: Engine, what: Callable[[], Any]) -> dict[str, int]:
    """By the name of each statement that this prepares and runs."""
    engine.dispose()  # nothing is prepared yet
    with captured(engine) as asked:
        what()
    prepared = [each for each in asked if each.text.startswith("PREPARE")]
    found = {}
    for each in prepared:
        name = each.text.split()[1]
        run = next(other for other in asked if other.text.startswith(f"EXECUTE {name}("))
        plain = Statement(each.text.replace("%%", "%"), None)
        found[name] = explain_prepared(engine, plain, run, analyze=True).pages
    return found


@pytest.mark.parametrize("known", [True, False], ids=["with statistics", "without"])
def test_accepting_reads_what_it_changes(engine: Engine, *, known: bool) -> None:
    _fill(engine, FEW, known=known)
    few = _pages(engine, _answer)
    _fill(engine, MANY, known=known)
    many = _pages(engine, _answer)
    assert few.keys() == many.keys()
    assert locking().name in few
    # A level more of each index, at most, for each of its probes.
    assert {name: many[name] / few[name] for name in few if many[name] > few[name] * GROWTH} == {}


_READ = sa.text(
    "SELECT relname, seq_scan + idx_scan AS looks FROM pg_stat_xact_user_tables WHERE schemaname = 'tidemill'"
)


def test_a_loop_of_deciders_reads_no_more_at_its_end(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    # P8: each step has the value of the next; those before it, which follow it, are not read each time.
    with r.world(monkeypatch):
        found = r.begin(start(w.crowd, ["x"]))
        looks = []
        for _ in range(30):
            answer = Answer(
                r.handed_out("crowd"), Value(None, [Planned("crowd", '{"args": [["x"]], "kwargs": {}}')], 0)
            )
            with saving() as connection:
                before = {row.relname: row.looks for row in connection.execute(_READ)}
                assert accept(connection, [answer]).judgements == [Take()]
                after = {row.relname: row.looks for row in connection.execute(_READ)}
                looks.append({name: each - before[name] for name, each in after.items()})
        assert looks[2] == looks[-1]
        # All of them finish with the last one, and it is the value of the process.
        assert r.word(r.well(r.handed_out("crowd"), "last")) == "taken"
        assert (r.state(session, found), r.process(session, found).value) == (ProcessState.FINISHED, "last")
        assert r.check(session) == {}


def _sweep() -> None:
    assert decisions.run_once(BATCH).restarted == BATCH


@pytest.mark.parametrize("known", [True, False], ids=["with statistics", "without"])
def test_a_sweep_reads_what_it_puts_back(engine: Engine, monkeypatch: pytest.MonkeyPatch, *, known: bool) -> None:
    # R1: whatever the processes have besides, and however many there are.
    with r.world(monkeypatch):
        few, many = (_swept(engine, rows, known=known) for rows in (FEW, MANY))
    assert few.keys() == many.keys()
    assert any("decisions_swept" in name for name in few)
    assert {name: many[name] / few[name] for name in few if many[name] > few[name] * GROWTH} == {}


def _swept(engine: Engine, rows: int, *, known: bool) -> dict[str, int]:
    _fill(engine, rows, known=known)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE tidemill.decision SET recovery_time = now() - interval '1 h' WHERE number = 2"
        )
    if known:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE tidemill.decision")
    return _pages(engine, _sweep)
