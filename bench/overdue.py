"""Very many decisions, some of which are overdue, and the product's own sweep over them; run as a process of its own.

Arguments as JSON in, one line of JSON out.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import sqlalchemy as sa

from app.db import autocommit, transaction
from bench import flows
from bench.sweep_floor import EMPTY_SWEEPS, LAPSE, places
from processes import preferences
from recovery import decisions

_TABLES = "tidemill.process, tidemill.graph, tidemill.task, tidemill.edge, tidemill.decision"
_EMPTY = f"truncate {_TABLES}, tidemill.repair, tidemill.repair_pace, tidemill.answer, tidemill.broken_task"
#: Each process has begun with a task, and waits for it. Every second one of these is in work, and not overdue; those
#: in work were claimed by tens.
_FILL = (
    """
    insert into tidemill.process (id, name, state, arguments, begun_at)
    select n, :name, 'ACTIVE', '{"args": [1], "kwargs": {}}', now() from generate_series(1, :count) n
    """,
    """
    insert into tidemill.graph (process_id, recovery_time)
    select n, now() + interval '1 h' from generate_series(1, :count) n
    """,
    """
    insert into tidemill.task (process_id, number, actor, state, arguments, ready_at)
    select n, 1, :name, 'READY', '{"args": [1], "kwargs": {}}', now() from generate_series(1, :count) n
    """,
    """
    insert into tidemill.decision (
        process_id, number, queue, state, pass_key, recovery_time, attempts, claimed_at, claimed_by
    )
    select n, 1, 'actor.' || :name, 'WORK'::tidemill.decision_state, md5((n / 20)::text)::uuid,
        now() + interval '1 h' + n / 20 * interval '1 us', 1, now(), 'somebody@w/1'
    from generate_series(2, :count, 2) n
    union all
    select n, 1, 'actor.' || :name, 'QUEUED', null, null, 0, null, null from generate_series(1, :count, 2) n
    """,
)


def fill(count: int) -> dict[str, Any]:
    """So many processes; none of their decisions is overdue."""
    preferences.synchronize()
    with transaction() as session:
        session.execute(sa.text(_EMPTY))
        for statement in _FILL:
            session.execute(sa.text(statement), {"name": flows.chain.__name__, "count": count})
    _vacuum(_TABLES)
    return {}


def sweep(count: int, rows: int, turns: list[int], spread: bool = False) -> dict[str, Any]:  # noqa: FBT001 - JSON
    """Milliseconds of a sweep that finds so many, and of one that finds nothing: the medians. The first of each makes
    its statements, and is not counted."""
    full, empty = [], []
    for turn in (turns[-1], *turns):
        _lapse(count, rows, turn, spread=spread)
        took, report = _sweep()
        assert report.restarted == rows, report
        full.append(took * 1000)
    for _ in range(1 + EMPTY_SWEEPS):
        took, report = _sweep()
        assert report == decisions.Report(), report
        empty.append(took * 1000)
    return {"full": statistics.median(full[1:]), "empty": statistics.median(empty[1:])}


def sweep_all(count: int, rows: int, turn: int) -> dict[str, Any]:
    """How many a second are swept up until nothing is left, by a service that has swept before."""
    _lapse(count, decisions.LIMIT, turn)
    _sweep()
    _lapse(count, rows, turn)
    _vacuum("tidemill.decision")
    begun, restarted = time.perf_counter(), 0
    while (report := decisions.run_once()).more:
        restarted += report.restarted
    took = time.perf_counter() - begun
    assert restarted + report.restarted == rows, restarted
    return {"rate": rows / took}


def _sweep() -> tuple[float, decisions.Report]:
    begun = time.perf_counter()
    report = decisions.run_once()
    return time.perf_counter() - begun, report


def _lapse(count: int, rows: int, turn: int, *, spread: bool = False) -> None:
    with transaction() as session:
        session.connection().exec_driver_sql(
            LAPSE.format("tidemill.decision"), places(count, rows, turn, spread=spread)
        )


def _vacuum(tables: str) -> None:
    with autocommit() as connection:
        connection.execute(sa.text(f"vacuum analyze {tables}"))


def drop() -> dict[str, Any]:
    with transaction() as session:
        session.execute(sa.text(_EMPTY))
    return {}


if __name__ == "__main__":
    each = (fill, sweep, sweep_all, drop)
    what = {function.__name__: function for function in each}[sys.argv[1]]
    print(json.dumps(what(**json.loads(sys.argv[2]))))
