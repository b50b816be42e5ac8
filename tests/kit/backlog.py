"""Processes in plenty that wait, and nothing is wrong with them."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from processes.model import queue_of

TABLES = "tidemill.process, tidemill.graph, tidemill.task, tidemill.edge, tidemill.decision"
#: Of each: the first task has the value of 3, which waits for 2, which has been ready for long.
_FILL = """
INSERT INTO tidemill.process (id, name, state, arguments, begun_at)
SELECT i, 'journey', 'ACTIVE', '{"args": [5], "kwargs": {}}', now() FROM generate_series(1, %(rows)s) i;
INSERT INTO tidemill.graph (process_id, tasks, unfinished, recovery_time)
SELECT i, 3, 3, now() - interval '1 min' FROM generate_series(1, %(rows)s) i;
INSERT INTO tidemill.task (process_id, number, actor, state, pending, value_of, arguments, uses, created_by, ready_at)
SELECT i, n, actor, cast(state AS tidemill.task_state), pending, value_of, '{"args": [], "kwargs": {}}', uses, by, now()
FROM generate_series(1, %(rows)s) i,
    (VALUES (1, 'journey', 'FOLLOWS', 0, 3, NULL, NULL), (2, 'stride', 'READY', 0, NULL, NULL, 1),
        (3, 'stride', 'PENDING', 1, NULL, ARRAY[2], 1)) t (n, actor, state, pending, value_of, uses, by);
INSERT INTO tidemill.edge (process_id, source, target, value)
SELECT i, source, target, target = 1 FROM generate_series(1, %(rows)s) i, (VALUES (3, 1), (2, 3)) e (source, target);
INSERT INTO tidemill.decision (process_id, number, queue, state, due_at)
SELECT i, n, CASE n WHEN 1 THEN 'actor.journey' ELSE 'actor.stride' END,
    cast(CASE n WHEN 1 THEN 'FINISH' ELSE 'QUEUED' END AS tidemill.decision_state), now() - interval '10 min'
FROM generate_series(1, %(rows)s) i, generate_series(1, 2) n;
"""


def fill(engine: Engine, rows: int, *, analyze: bool = False) -> None:
    """Looked at for their idleness by the next sweep."""
    with engine.begin() as connection:
        connection.exec_driver_sql(_FILL, {"rows": rows})
    if analyze:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"VACUUM ANALYZE {TABLES}")


_SLOW = """
INSERT INTO tidemill.worker (name, queues, slots, pid, beat_at)
VALUES ('slow@w', ARRAY[:queue], 1, 1, now() + interval '1 h');
INSERT INTO tidemill.queue_poll (queue, polled_at, reached)
VALUES (:queue, now() + interval '1 h', now() - interval '1 h');
"""


def slow_actor(engine: Engine, actor: str = "stride") -> None:
    """Somebody works at it, for as long as the test lasts, and has not come so far."""
    _execute(engine, _SLOW, actor)


def paused_actor(engine: Engine, actor: str = "stride") -> None:
    slow_actor(engine, actor)
    _execute(engine, "INSERT INTO tidemill.queue (name, paused) VALUES (:queue, true)", actor)


def _execute(engine: Engine, statements: str, actor: str) -> None:
    with engine.begin() as connection:
        for each in filter(str.strip, statements.split(";")):
            connection.execute(sa.text(each), {"queue": queue_of(actor)})
