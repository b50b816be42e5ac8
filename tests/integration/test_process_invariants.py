"""What always holds of processes: the database refuses some of what breaks it. `test_invariants.py` has the rest."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from processes.model import DECISION, GRAPH, PROCESS, TASK

#: 1: has a task of each kind but the broken one, which 2 has; 3 is registered, 4 finished, 5 aborted.
SOUND = """
INSERT INTO tidemill.process (id, name, state, arguments, begun_at, ended_at, recovery_time, idempotency_key)
SELECT id, 'sell', cast(state AS tidemill.process_state), '{"args": [], "kwargs": {}}',
    CASE WHEN state <> 'REGISTERED' THEN now() END, CASE WHEN state IN ('FINISHED', 'ABORTED') THEN now() END,
    now() + interval '1 min', id
FROM (VALUES (1, 'ACTIVE'), (2, 'BROKEN'), (3, 'REGISTERED'), (4, 'FINISHED'), (5, 'ABORTED')) p (id, state);
INSERT INTO tidemill.graph (process_id, tasks, unfinished, broken, recovery_time) VALUES
    (1, 5, 4, 0, now() + interval '1 min'), (2, 2, 2, 1, now() + interval '1 min'), (4, 1, 0, 0, NULL),
    (5, 2, 2, 0, NULL);
INSERT INTO tidemill.task (process_id, number, actor, state, pending, value_of, arguments, created_by)
SELECT p, n, 'sell', cast(state AS tidemill.task_state), pending, value_of, '{"args": [], "kwargs": {}}', 1
FROM (VALUES (1, 1, 'FOLLOWS', 0, 4), (1, 2, 'FINISHED', 0, NULL), (1, 3, 'READY', 0, NULL), (1, 4, 'PENDING', 1, NULL),
    (1, 5, 'READY', 0, NULL), (2, 1, 'PENDING', 1, NULL), (2, 2, 'BROKEN', 0, NULL), (4, 1, 'FINISHED', 0, NULL),
    (5, 1, 'ABORTED', 1, NULL), (5, 2, 'ABORTED', 0, NULL)) t (p, n, state, pending, value_of);
INSERT INTO tidemill.edge (process_id, source, target, value)
VALUES (1, 4, 1, true), (1, 2, 4, false), (1, 3, 4, false), (2, 2, 1, false), (5, 2, 1, false);
INSERT INTO tidemill.decision (process_id, number, queue, state, pass_key, recovery_time)
SELECT p, n, 'actor.sell', cast(state AS tidemill.decision_state),
    CASE WHEN state = 'WORK' THEN gen_random_uuid() END, CASE WHEN state = 'WORK' THEN now() + interval '1 min' END
FROM (VALUES (1, 1, 'FINISH'), (1, 2, 'FINISH'), (1, 3, 'QUEUED'), (1, 5, 'WORK'), (2, 2, 'FINISH'), (4, 1, 'FINISH'),
    (5, 2, 'FINISH')) d (p, n, state);
INSERT INTO tidemill.broken_task (process_id, number, actor, type, message) VALUES (2, 2, 'sell', 'ValueError', 'no');
"""


def _task(process_id: int, number: int, **values: Any) -> sa.Update:
    return sa.update(TASK).where(TASK.c.process_id == process_id, TASK.c.number == number).values(**values)


def _decision(number: int, **values: Any) -> sa.Update:
    return sa.update(DECISION).where(DECISION.c.process_id == 1, DECISION.c.number == number).values(**values)


def _graph(process_id: int, **values: Any) -> sa.Update:
    return sa.update(GRAPH).where(GRAPH.c.process_id == process_id).values(**values)


def _process(process_id: int, **values: Any) -> sa.Update:
    return sa.update(PROCESS).where(PROCESS.c.id == process_id).values(**values)


@pytest.fixture
def sound(session: Session) -> Session:
    session.connection().exec_driver_sql(SOUND)
    return session


@pytest.mark.parametrize(
    "statement",
    [
        _decision(3, state="WORK"),
        _decision(5, pass_key=None),
        _process(1, state="FINISHED"),
        _process(4, ended_at=None),
        _process(2, idempotency_key="1"),
        _graph(1, unfinished=6),
        _graph(1, broken=5),
        _task(1, 4, pending=0),
        _task(1, 3, pending=-1),
        _task(1, 3, pending=1),
    ],
)
def test_the_database_refuses_what_makes_no_sense(sound: Session, statement: sa.Update) -> None:
    with pytest.raises(IntegrityError):
        sound.execute(statement)
