"""What the catalogue reads follows what waits, runs, or goes on, and not what there is; what no index can find reads a
bounded number of rows."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from app.db import engine
from recovery import invariants
from recovery.invariants import NAMED
from recovery.invariants.entry import BOUND
from tests.kit.plans import Statement, captured, explain

#: That grow with what there was, or is to be done one day.
LARGE = {
    *("job", "job_log", "run", "stage_visit", "stage_state", "process", "graph", "task", "decision", "edge"),
    *("broken_task", "event", "repair", "operation_item"),
}
FILL = """
INSERT INTO tidemill.job (task, queue, due_at) SELECT 't', 'q' || i % 3, now() + i * interval '1 s'
FROM generate_series(1, 30000) i;
INSERT INTO tidemill.job (task, queue, state, pass_key, recovery_time, claimed_by, claimed_at)
SELECT 't', 'q', 'running', gen_random_uuid(), now() + interval '1 h', 'w', now() FROM generate_series(1, 20) i;
INSERT INTO tidemill.job_log
    (job_id, attempt, outcome, queue, task, args, kwargs, rank, max_attempts, enqueued_at)
SELECT -i, 1, 'done', 'q', 't', '[]', '{}', 0, 4, now() FROM generate_series(1, 30000) i;
INSERT INTO tidemill.reactive_task (name, module, pool, priority, trigger, shape, produces, first_run, on_lapse,
    max_failures, backoff, code)
SELECT 't' || i, 'm', 'p', 0, '{}', 's', '[]', 'fire', 'drop', 3, '1 s', 'c' FROM generate_series(1, 100) i;
INSERT INTO tidemill.run (task, queue, priority, generation, state, ended_at, started_at, checked)
SELECT 't' || i % 100, 'reactive.p', 0, 0, 'done', now(), now(), '[]' FROM generate_series(1, 30000) i;
INSERT INTO tidemill.run (task, queue, priority, generation)
SELECT 't' || i, 'reactive.p', 0, 0 FROM generate_series(1, 20) i;
INSERT INTO tidemill.entity_kind (kind) VALUES ('lot');
INSERT INTO tidemill.stage (kind, name, task, module, max_attempts) VALUES ('lot', 'check', 'm.check', 'm', 3);
INSERT INTO tidemill.stage_visit (kind, entity_id, stage, shard, queue, due_at)
SELECT 'lot', i, 'check', tidemill.shard(i::text), 'stage.lot.check', now() + interval '1 h'
FROM generate_series(1, 30000) i;
INSERT INTO tidemill.stage_state (kind, entity_id, stage, type_url, value)
SELECT 'lot', i, 'check', 't', '' FROM generate_series(1, 30000) i;
INSERT INTO tidemill.process (id, name, state, arguments, begun_at, ended_at)
SELECT i, 'sell', 'FINISHED', '{}', now(), now() FROM generate_series(1, 20000) i;
INSERT INTO tidemill.process (id, name, state, arguments, begun_at)
SELECT i, 'sell', 'ACTIVE', '{}', now() FROM generate_series(20001, 20020) i;
INSERT INTO tidemill.graph (process_id, tasks, unfinished, recovery_time)
SELECT id, 2, CASE WHEN state = 'ACTIVE' THEN 2 ELSE 0 END,
    CASE WHEN state = 'ACTIVE' THEN now() + interval '1 h' END FROM tidemill.process;
INSERT INTO tidemill.task (process_id, number, actor, state, pending, arguments, result)
SELECT id, n, 'sell', cast(CASE WHEN state = 'FINISHED' THEN 'FINISHED' WHEN n = 1 THEN 'PENDING' ELSE 'READY' END
    AS tidemill.task_state), CASE WHEN state = 'ACTIVE' AND n = 1 THEN 1 ELSE 0 END, '{}', '1'
FROM tidemill.process, generate_series(1, 2) n;
INSERT INTO tidemill.edge (process_id, source, target) SELECT id, 2, 1 FROM tidemill.process;
INSERT INTO tidemill.decision (process_id, number, queue, state)
SELECT process_id, number, 'actor.sell', cast(CASE WHEN state = 'READY' THEN 'QUEUED' ELSE 'FINISH' END
    AS tidemill.decision_state) FROM tidemill.task;
INSERT INTO tidemill.broken_task (process_id, number, actor, type, message)
SELECT -i, 1, 'sell', 'E', 'm' FROM generate_series(1, 20000) i;
INSERT INTO tidemill.event (kind, entity_id, stage, version, fields, entity, state_version)
SELECT 'lot', i, 'check', 1, '{}', '{}', 0 FROM generate_series(1, 20000) i;
INSERT INTO tidemill.operation (kind, state, selection, parameters, total, done, ended_at)
SELECT 'recover', 'DONE', '{}', '{}', 2000, 2000, now() FROM generate_series(1, 10);
INSERT INTO tidemill.operation (kind, selection, parameters, total) VALUES ('recover', '{}', '{}', 100);
INSERT INTO tidemill.operation_item (operation_id, position, process_id, state)
SELECT id, i, i, cast(CASE WHEN o.state = 'DONE' THEN 'DONE' ELSE 'WAITING' END AS tidemill.operation_item_state)
FROM tidemill.operation o, generate_series(1, 2000) i WHERE i <= total;
SELECT setval('tidemill.process_id_seq', 30000);
"""


@pytest.fixture
def _large(session: Session) -> None:
    connection = session.connection()
    for each in FILL.split(";\n"):
        if each.strip():
            connection.exec_driver_sql(each.replace("%", "%%"))
    session.commit()
    with engine().connect().execution_options(isolation_level="AUTOCOMMIT") as vacuum:
        vacuum.exec_driver_sql("VACUUM ANALYZE")


@pytest.mark.usefixtures("_large")
def test_nothing_large_is_read_whole() -> None:
    # R1
    whole = {}
    for each in invariants.ALL:
        with captured(engine()) as sent:
            assert invariants.look(each).failed is None
        asked = [statement for statement in sent if "tidemill." in statement.text]
        assert asked, each.name
        read = [explain(engine(), Statement(one.text, one.parameters)).read_whole() & LARGE for one in asked]
        if found := set().union(*read):
            whole[each.name] = found
    assert {name: found for name, found in whole.items() if NAMED[name].bound is None} == {}
    assert all(each.bound in (None, BOUND) for each in invariants.ALL)
    bounded = [each.look for each in invariants.ALL if each.bound is not None]
    with captured(engine()) as sent, engine().connect() as connection:
        for look in bounded:
            look(connection, 5)
    # The rows that a bounded detector reads are limited within its query, not only those that it finds.
    assert [one.text for one in sent if "LIMIT" in one.text and str(BOUND) not in str((one.text, one.parameters))] == []
