"""Very many processes, and a few old ones among them that are to be found: by each thing that may be searched for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from processes import finding
from processes.errors import groups
from processes.filters import Filters
from processes.model import BROKEN_TASK
from processes.states import ProcessState
from tests.kit import plans
from tests.kit.plans import captured

#: When the last one was registered; each a second after the one before.
LAST = datetime(2030, 1, 1, tzinfo=UTC)
#: The oldest ones, which are like no others.
FEW = 100
#: One in so many is broken, and one in ten of these is of another failure than most.
BROKEN = 20
FILL = """
INSERT INTO tidemill.actor_preferences (name, decider, outside, module, task, accept_first, work_timeout,
    restart_after_work_timeout, max_restarts, force_finish_after_task_timeout, retry, fail_types, idle_process_timeout,
    retention, when_inconsistent, declared)
SELECT name, decider, false, 'm', 't', true, '1 min', true, 3, false, '{}', '{}', '1 min', '1 d', 'mark', '{}'
FROM (VALUES ('sell', true), ('rare', true), ('charge', false), ('seldom', false)) a (name, decider);
INSERT INTO tidemill.process (id, name, state, custom_id, idempotency_key, attributes, arguments, error, registered_at,
    begun_at, ended_at)
SELECT i, CASE WHEN few THEN 'rare' ELSE 'sell' END, state::tidemill.process_state,
    CASE WHEN few THEN 'odd-' || i ELSE 'order-' || i END, 'key-' || i,
    jsonb_build_object('shop', CASE WHEN few THEN 'odd' ELSE (i %% 50)::text END, 'order', i),
    '{"args": [], "kwargs": {}}', CASE WHEN state = 'ABORTED' THEN 'aborted: peculiar ' || i END, at,
    at + interval '1 s',
    CASE WHEN state IN ('FINISHED', 'ABORTED') THEN at + interval '2 s' END
FROM (SELECT i, i <= %(few)s AS few, %(last)s::timestamptz - (%(rows)s - i) * interval '1 s' AS at,
    CASE WHEN i %% %(broken)s = 0 THEN 'BROKEN' WHEN i <= %(few)s THEN 'ABORTED' WHEN i %% 7 = 0 THEN 'ACTIVE'
        ELSE 'FINISHED' END AS state FROM generate_series(1, %(rows)s) i) p;
INSERT INTO tidemill.graph (process_id, tasks, unfinished, broken)
SELECT id, 2, 2, (state = 'BROKEN')::int FROM tidemill.process;
INSERT INTO tidemill.broken_task (process_id, number, actor, at, type, message, traceback)
SELECT id, 2, CASE WHEN few THEN 'seldom' ELSE 'charge' END, begun_at,
    CASE WHEN few THEN 'OddError' ELSE 'ApiError' END,
    CASE WHEN few THEN 'curious thing' WHEN id %% (%(broken)s * 10) = 0 THEN 'no such order' ELSE '503' END
        || ' ' || id,
    repeat('  File "x.py", line 1, in <module>' || chr(10), 20)
FROM (SELECT *, id <= %(few)s AS few FROM tidemill.process WHERE state = 'BROKEN') p;
INSERT INTO tidemill.decision (process_id, number, queue, state)
SELECT id, 2, 'actor.charge', CASE WHEN state = 'ACTIVE' AND id %% 70 = 0 THEN 'QUEUED' ELSE 'FINISH' END
    ::tidemill.decision_state
FROM tidemill.process;
"""
TABLES = ("process", "graph", "broken_task", "decision")


def fill(engine: Engine, rows: int) -> None:
    """With statistics."""
    with engine.begin() as connection:
        connection.exec_driver_sql(FILL, {"rows": rows, "few": FEW, "broken": BROKEN, "last": LAST})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"VACUUM ANALYZE {', '.join(f'tidemill.{name}' for name in TABLES)}")


def _at(number: int, rows: int) -> datetime:
    return LAST - timedelta(seconds=rows - number)


def searches(session: Session, rows: int) -> Mapping[str, tuple[Filters, str]]:
    """By their names: what is asked for, and the index that has the few that it is about."""
    odd = session.execute(
        sa.select(BROKEN_TASK.c.fingerprint).where(BROKEN_TASK.c.actor == "seldom").limit(1)
    ).scalar_one()
    early, late = _at(FEW // 2, rows), _at(rows - FEW // 2, rows)
    return {
        "nothing": (Filters(), "process_pkey"),
        "state": (Filters(states=(ProcessState.ABORTED,)), "process_state"),
        "type": (Filters(name="rare"), "process_state"),
        "type and state": (Filters(name="rare", states=(ProcessState.BROKEN,)), "process_state"),
        "custom id": (Filters(custom_id="odd-17"), "process_custom_id"),
        "beginning of the custom id": (Filters(custom_id_prefix="odd-"), "process_custom_id"),
        "idempotency key": (Filters(idempotency_key="key-17"), "process_idempotency"),
        "attribute": (Filters(attributes={"shop": "odd"}), "process_attributes"),
        "one attribute of many": (Filters(attributes={"shop": "7", "order": "157"}), "process_attributes"),
        "words of the process": (Filters(text="peculiar aborted"), "process_words"),
        "words of a task": (Filters(text="curious"), "broken_task_words"),
        "error class": (Filters(error_class="OddError"), "broken_task_type"),
        "fingerprint": (Filters(fingerprint=odd), "broken_task_fingerprint"),
        "actor": (Filters(actor="seldom"), "broken_task_actor"),
        "actor and words": (Filters(actor="charge", text="such order", error_class="ApiError"), "broken_task_words"),
        "registered since": (Filters(since=late), "process_registered_at"),
        "registered until": (Filters(until=early), "process_registered_at"),
        "begun since": (Filters(begun_since=late), "process_begun"),
        "begun until": (Filters(begun_until=early), "process_begun"),
        "ended since": (Filters(ended_since=late), "process_ended"),
        "ended until": (Filters(ended_until=early, name="rare"), "process_ended"),
        "broken since": (Filters(broken_since=late), "broken_task_at"),
        "broken until": (Filters(broken_until=early), "broken_task_at"),
    }


def found_by_index(session: Session, engine: Engine, filters: Filters) -> tuple[int, set[str]]:
    """How many it finds, and by which indexes; no table of very many rows is read from end to end, nor by an index that
    leads past most of it."""
    with captured(engine) as statements:
        found = finding.found(session, filters, 1_000)
    session.rollback()
    used = set[str]()
    for each in statements:
        if each.text.startswith(("SELECT", "WITH")):
            plan = plans.explain(engine, each, analyze=True)
            used |= plan.indexes()
            assert not plan.read_whole() & set(TABLES), (each.text, plan.root)
            assert max(_removed(plan)) <= finding.NEWEST, (each.text, plan.root)
    return len(found), used


def _removed(plan: plans.Plan) -> Iterator[float]:
    """Rows that were read in vain."""
    for node in plan.nodes():
        yield node.get("Rows Removed by Filter", 0) * node["Actual Loops"]


def groups_by_index(session: Session, engine: Engine, **words: Any) -> tuple[list[int], set[str]]:
    """The sizes of the groups of errors, and by which indexes they are found."""
    with captured(engine) as statements:
        found = groups(session, **words)
    session.rollback()
    plan = plans.explain(engine, statements[-1], analyze=True)
    assert not plan.read_whole() & set(TABLES), plan.root
    return [each.count for each in found], plan.indexes()
