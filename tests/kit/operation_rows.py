"""Operations in this process: things in plenty for them to be over, and services that work them off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from processes.filters import Filters
from recovery import operations
from recovery.operations import Kind, Order, running
from recovery.operations.running import Report
from tests.kit import process_rows as r

#: As if `crowd` had asked for one task of `toil`, which broke.
_BROKEN = sa.text(
    """
    WITH made AS (
        INSERT INTO tidemill.process (name, state, arguments, begun_at, error, custom_id, recovery_time)
        SELECT 'crowd', 'BROKEN', '{"args": [["x"]], "kwargs": {}}', now(), 'task 2, toil: Bad: on purpose', 'c' || i,
            NULL
        FROM generate_series(1, :rows) i RETURNING id
    ), graphs AS (
        INSERT INTO tidemill.graph (process_id, tasks, unfinished, broken, recovery_time)
        SELECT id, 2, 1, 1, now() + interval '1 h' FROM made
    ), tasks AS (
        INSERT INTO tidemill.task (process_id, number, actor, state, arguments, created_by, result, ready_at, ended_at)
        SELECT id, number, actor, cast(state AS tidemill.task_state), cast(arguments AS json), created_by,
            cast(result AS json), now(), ended_at
        FROM made, (VALUES (1, 'crowd', 'FINISHED', '{"args": [["x"]], "kwargs": {}}', NULL, '1', now()),
            (2, 'toil', 'BROKEN', '{"args": ["x"], "kwargs": {}}', 1, NULL, NULL))
            t (number, actor, state, arguments, created_by, result, ended_at)
    ), decisions AS (
        INSERT INTO tidemill.decision (process_id, number, queue, state, ended_at)
        SELECT id, number, queue, 'FINISH', now()
        FROM made, (VALUES (1, 'actor.crowd'), (2, 'actor.toil')) d (number, queue)
    ), broken AS (
        INSERT INTO tidemill.broken_task (process_id, number, actor, type, message)
        SELECT id, 2, 'toil', 'Bad', 'on purpose' FROM made
    )
    SELECT id FROM made ORDER BY id
    """
)
#: A restart of such a process fails.
_STUCK = """
CREATE TABLE public.stuck (process_id bigint PRIMARY KEY);
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM public.stuck s WHERE s.process_id = new.process_id) THEN
        RAISE EXCEPTION 'process %% is stuck', new.process_id;
    END IF;
    RETURN new;
END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON tidemill.task FOR EACH ROW EXECUTE FUNCTION public.refuse();
"""
BROKEN = Filters(name="crowd")


def broken(session: Session, count: int) -> list[int]:
    """Processes of `tests.kit.process_world` whose second task is broken; committed."""
    found = list(session.execute(_BROKEN, {"rows": count}).scalars())
    session.commit()
    return found


def stuck(session: Session, ids: Sequence[int]) -> None:
    session.connection().exec_driver_sql(_STUCK)
    session.execute(sa.text("INSERT INTO public.stuck SELECT unnest(cast(:ids AS bigint[]))"), {"ids": list(ids)})
    session.commit()


def free(session: Session) -> None:
    session.execute(sa.text("DELETE FROM public.stuck"))
    session.commit()


def over_broken(**words: Any) -> int:
    """Restarts the tasks that are broken, as fast as it goes."""
    return operations.start(Order(Kind.RESTART_TASK, BROKEN), **{"rate": None, **words})


def work_off(limit: int = 100) -> list[Report]:
    """Every batch that can be made now."""
    reports = [running.run_once(limit)]
    while reports[-1].more:
        reports.append(running.run_once(limit))
    return reports


def counts(operation_id: int) -> tuple[str, int, int, int, int]:
    found = operations.show(operation_id)
    return str(found.state), found.total, found.done, found.failed, found.skipped


def epochs(session: Session) -> Sequence[Row[Any]]:
    """How often each broken task was restarted; of those for which that is not once."""
    return r.rows(session, "SELECT process_id, epoch FROM tidemill.decision WHERE number = 2 AND epoch <> 1")
